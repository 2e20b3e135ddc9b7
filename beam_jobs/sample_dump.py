"""Writes a synthetic review dump of any size: readable, deterministic, with the mess of real dumps in known amounts.

The records have the field names of the 2018 release (Ni et al. 2019): JSON lines, gzip when the path ends in `.gz`.
Line i depends on (seed, i) alone (a repeated line copies an earlier one of the same thousand), so memory does not grow
with the size, and the first lines of a large dump are the small dump of the same seed.

What the language is designed to show. A review talks about two or three aspects of a product (durability, taste, …; see
sample_lexicon.py) and describes each with a few opinion words of one family, that is of one aspect and one polarity.
There are some 1,300 such words, so a few hundred labelled reviews contain each about once or not at all, and all else
in a review (frames, purchase stories, subjects) is the same for praise and for blame. In unlabelled text, however,
words of a family keep company with each other, and praise keeps company with praise, so pre-training can learn from the
dump what the labels are too few to teach. Real reviews are not that simple: on them minutes of pre-training are worth
nothing. The sample shows that the path works, not how much it brings.

How opinions agree with the stars (`_OPINIONS`): 5 and 1 stars are unanimous, 4 and 2 are hedged ("fairly …") or have
one aspect of the other polarity among three, 3 stars are split.
"""

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import IO, Any, cast

from beam_jobs import storage
from beam_jobs.command import UserMistake, main
from beam_jobs.sample_lexicon import (
    ASPECTS,
    BRANDS,
    CATEGORIES,
    COLORS,
    PEOPLE,
    PLACES,
    SPANS,
    TIMES,
    Aspect,
)

MESS_PER_THOUSAND = {
    "broken_line": 3,  # the JSON is cut off in the middle of the record
    "missing_text": 4,  # no reviewText field
    "empty_text": 4,  # reviewText is ""
    "repeated_line": 20,  # the same bytes as an earlier line
    "repeated_text": 10,  # the text and stars of an earlier review, by another reviewer
    "one_word": 20,  # the whole text is one opinion word
    "very_long": 2,  # more than 5,000 characters
    "html_tags": 40,  # <br /> or <b> in the text
    "entities": 40,  # &amp; &#34; &quot; in the text
    "no_space": 30,  # "sturdy.It came": no space after a full stop
    "line_breaks": 10,
    "typo": 80,  # two neighbouring letters of one word exchanged
    "accents": 5,  # words with accents and an emoji
    "personal": 2,  # an invented e-mail address and telephone number
    "video_marker": 2,  # [[VIDEOID:…]]
}
"""So many of every 1,000 lines, exactly, are of each kind; no line is of two. The other 728 are plain."""

LONG_TEXT = 5_000  # characters a very_long text exceeds
_STARS = (
    (5.0,) * 50 + (4.0,) * 17 + (3.0,) * 9 + (2.0,) * 9 + (1.0,) * 15
)  # percent; five stars dominate, as in real dumps
# stars -> the possible polarities of a review's aspects (1 praise, 0 blame) and whether its words are hedged
_OPINIONS: dict[float, tuple[tuple[tuple[int, ...], bool], ...]] = {
    5.0: (((1, 1), False), ((1, 1), False), ((1, 1, 1), False)),
    4.0: (((1, 1), True), ((1, 1, 0), True), ((1, 1, 1), True)),
    3.0: (((1, 0), True), ((0, 1), True), ((1, 0), False), ((0, 1), False)),
    2.0: (((0, 0), True), ((0, 0, 1), True), ((0, 0, 0), True)),
    1.0: (((0, 0), False), ((0, 0), False), ((0, 0, 0), False)),
}
_PLAIN_ADVERBS = ("", "", "", "really ", "so ", "very ", "truly ", "absolutely ", "remarkably ", "extremely ")
_HEDGES = ("fairly ", "rather ", "somewhat ", "a bit ", "kind of ", "sort of ", "mostly ", "slightly ")
# {s} subject, {v} verb, {d} adverb, {a} {b} {c} {e} opinion words of one family
_FRAMES = (
    "The {s} {v} {d}{a}, {b} and {c}.",
    "The {s} {v} {a}, {b}, {c} and {d}{e}.",
    "{A}, {b}, {c} {s}.",
    "{A}, {b}, {c}, {e}: that is the {s}.",
    "It {v} {d}{a}, {b} and {c}.",
    "It {v} {a}, {b}, {d}{c}, {e}.",
    "{A} and {b}, {d}{c}.",
    "{A}, {b}, {c}, {d}{e}.",
    "My {p} calls it {d}{a}, {b}, {c}.",
    "The {s} {v} {d}{a} and {b}.",
)
_VERBS = ("is", "is", "was", "seems", "feels", "turned out", "proved", "remains")
_FILLERS = (
    "I bought this {product} {time}.",
    "A {product} for my {p}.",
    "It came in a {color} box.",
    "We use it {span}.",
    "My {n}th {product}.",
    "My {p} has the same {brand}.",
    "Before that I had a {brand}.",
    "It is the {color} one, model {n}.",
    "I keep it in the {place}.",
    "My {p} picked the {color} one.",
    "Bought {time} for the {place}.",
    "I use mine {span}.",
)
_TITLES = ("{A} and {b}", "{A} {product}", "{stars}", "{stars}", "About the {s}", "{A}, {b}", "My {product}", "{A}!")
_STAR_TITLES = {1.0: "One Star", 2.0: "Two Stars", 3.0: "Three Stars", 4.0: "Four Stars", 5.0: "Five Stars"}
_ACCENTS = ("Très bien emballé 😀.", "My café-loving fiancée saw it 👍.", "Déjà vu, señor! 🎉")
_DAYS = 4_000  # review dates span the days from 2007-06-01, as in the 2018 release
_FIRST_DAY = 1_180_656_000  # 2007-06-01, seconds since 1970
_ID_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_STRIDE = 389  # coprime to 1,000: scatters the kinds of mess over the thousand


def _slots() -> tuple[str, ...]:
    """The kind of each of a thousand consecutive lines ('plain' or a key of MESS_PER_THOUSAND)."""
    kinds = ["plain"] * 1_000
    position = _STRIDE
    for kind, count in MESS_PER_THOUSAND.items():
        for _ in range(count):
            kinds[position % 1_000] = kind
            position += _STRIDE
    return tuple(kinds)


_SLOTS = _slots()


def _original(slot: int) -> int:
    """The slot of the plain line that a repeated one copies: an earlier one, if possible not among the last six."""
    return max(s for s in range(max(slot - 6, 1)) if _SLOTS[s] == "plain")


_ORIGINALS = {slot: _original(slot) for slot, kind in enumerate(_SLOTS) if kind.startswith("repeated")}
_BY_NAME = {aspect.name: aspect for aspect in ASPECTS}
_CATEGORY_ASPECTS = tuple((c.products, tuple(_BY_NAME[name] for name in c.aspects)) for c in CATEGORIES)


def mess_counts(reviews: int) -> dict[str, int]:
    """How many of the first `reviews` lines are of each kind, 'plain' included; they sum to `reviews`."""
    whole, rest = divmod(reviews, 1_000)
    return {kind: whole * _SLOTS.count(kind) + _SLOTS[:rest].count(kind) for kind in ("plain", *MESS_PER_THOUSAND)}


class Writer:
    """Writes the reviews of one seed, line by line."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = Random()
        self._days = [
            (time.strftime("%m %d, %Y", time.gmtime(second)), second)
            for second in range(_FIRST_DAY, _FIRST_DAY + _DAYS * 86_400, 86_400)
        ]

    def line(self, index: int) -> str:
        """The line with this index, without its line end."""
        kind = _SLOTS[index % 1_000]
        if kind == "plain":
            return json.dumps(self._record(index))
        if kind == "repeated_line":
            return self.line(self._original_of(index))
        if kind == "broken_line":
            whole = json.dumps(self._record(index))
            return whole[: len(whole) * 2 // 3]
        return json.dumps(self._messy(index, kind))

    def _original_of(self, index: int) -> int:
        return index - index % 1_000 + _ORIGINALS[index % 1_000]

    def _messy(self, index: int, kind: str) -> dict[str, Any]:
        record = self._record(index)
        text = record["reviewText"]
        if kind == "missing_text":
            del record["reviewText"]
        elif kind == "empty_text":
            record["reviewText"] = ""
        elif kind == "repeated_text":
            original = self._record(self._original_of(index))
            record |= {key: original[key] for key in ("reviewText", "overall", "summary")}
        elif kind == "one_word":
            praised = record["overall"] >= 3
            aspect = self._pick(ASPECTS)
            record["reviewText"] = self._pick(aspect.praise if praised else aspect.blame).capitalize()
        elif kind == "very_long":
            record["reviewText"] = self._very_long(text, record["overall"])
        else:
            record["reviewText"] = self._with_mess(text, kind)
        return record

    def _with_mess(self, text: str, kind: str) -> str:
        """The text with one kind of mess in it; the words stay what they were (but for a typo in one)."""
        first, _, rest = text.partition(". ")
        if kind == "html_tags":
            return f"<b>{first}.</b><br /><br />{rest}"
        if kind == "entities":
            return f"{text} &#34;Box &amp; manual&#34; are &quot;as shown&quot;."
        if kind == "no_space":
            return text.replace(". ", ".")
        if kind == "line_breaks":
            return text.replace(". ", ".\n")
        if kind == "accents":
            return f"{text} {self._pick(_ACCENTS)}"
        if kind == "personal":
            number = int(self._rng.random() * 100)
            return f"{text} Write to {self._pick(PEOPLE)}{number}@example.com or call 555-01{number:02d}."
        if kind == "video_marker":
            return f"[[VIDEOID:{self._identifier('', 12).lower()}]] {text}"
        assert kind == "typo", kind
        return self._with_typo(text)

    def _with_typo(self, text: str) -> str:
        """Exchanges two neighbouring, different lower-case letters, the first such pair after a random place."""
        for i in range(int(self._rng.random() * (len(text) - 12)), len(text) - 1):
            if text[i] != text[i + 1] and text[i].islower() and text[i + 1].islower():
                return text[:i] + text[i + 1] + text[i] + text[i + 2 :]
        return text

    def _very_long(self, text: str, stars: float) -> str:
        parts = [text]
        length = len(text)
        while length <= LONG_TEXT:
            products, aspects = self._pick(_CATEGORY_ASPECTS)
            parts.append(self._text(stars, self._scene(products), aspects))
            length += len(parts[-1]) + 1
        return " ".join(parts)

    def _record(self, index: int) -> dict[str, Any]:
        self._rng.seed((self._seed << 40) + index)
        random = self._rng.random
        stars = _STARS[int(random() * 100)]
        products, aspects = self._pick(_CATEGORY_ASPECTS)
        scene = self._scene(products)
        text = self._text(stars, scene, aspects)
        day, second = self._days[int(random() * _DAYS)]
        record = {
            "overall": stars,
            "verified": random() < 0.85,
            "reviewTime": day,
            "reviewerID": self._identifier("A", 10),
            "asin": f"B0{int(random() ** 3 * 30_000):08d}",
            "reviewerName": f"{self._pick(PEOPLE).capitalize()} {self._identifier('', 1)}.",
            "reviewText": text,
            "summary": self._title(stars, scene),
            "unixReviewTime": second,
        }
        if random() < 0.1:
            record["vote"] = str(2 + int(random() * 20))
        if random() < 0.3:
            record["style"] = {"Color:": f" {scene['color']}"}
        return record

    def _scene(self, products: tuple[str, ...]) -> dict[str, str]:
        """What the whole review is about: the values of the frames' fields that do not change within it."""
        pick, random = self._pick, self._rng.random
        return {
            "product": pick(products),
            "p": pick(PEOPLE),
            "place": pick(PLACES),
            "time": pick(TIMES),
            "span": pick(SPANS),
            "color": pick(COLORS),
            "brand": BRANDS[int(random() ** 4 * len(BRANDS))],  # a few are everywhere, most are rare
            "n": str(4 + int(random() ** 2 * 96)),
        }

    def _text(self, stars: float, scene: dict[str, str], aspects: tuple[Aspect, ...]) -> str:
        """One sentence per aspect and one or two neutral ones, the first of them often in front.

        Leaves the last aspect's words in the scene, for the title.
        """
        random = self._rng.random
        polarities, hedged = self._pick(_OPINIONS[stars])
        fillers = [self._pick(_FILLERS).format_map(scene) for _ in range(1 + int(random() * 1.5))]
        at = int(random() * len(aspects))
        opinions = []
        for step, polarity in enumerate(polarities):
            aspect = aspects[(at + step * 2) % len(aspects)]
            opinions.append(self._opinion(aspect, polarity, hedged, scene))
        sentences = fillers[:1] + opinions + fillers[1:] if random() < 0.7 else opinions + fillers
        return " ".join(sentences)

    def _opinion(self, aspect: Aspect, polarity: int, hedged: bool, scene: dict[str, str]) -> str:
        random = self._rng.random
        words = aspect.praise if polarity else aspect.blame
        n = len(words)
        a = int(random() * n)
        third = n // 3  # steps of less than a third of the family never come back to a word
        b = (a + 1 + int(random() * third)) % n
        c = (b + 1 + int(random() * third)) % n
        e = (c + 1 + int(random() * (third - 3))) % n
        scene["a"], scene["b"], scene["c"], scene["e"] = words[a], words[b], words[c], words[e]
        scene["A"] = words[a].capitalize()
        scene["s"] = self._pick(aspect.subjects)
        scene["v"] = self._pick(_VERBS)
        scene["d"] = self._pick(_HEDGES if hedged else _PLAIN_ADVERBS)
        return self._pick(_FRAMES).format_map(scene)

    def _title(self, stars: float, scene: dict[str, str]) -> str:
        return self._pick(_TITLES).format_map(scene | {"stars": _STAR_TITLES[stars]})

    def _identifier(self, start: str, letters: int) -> str:
        number = int(self._rng.random() * 36**letters)
        digits = []
        for _ in range(letters):
            number, digit = divmod(number, 36)
            digits.append(_ID_LETTERS[digit])
        return start + "".join(digits)

    def _pick(self, values: Any) -> Any:
        return values[int(self._rng.random() * len(values))]


def lines(reviews: int, seed: int, start: int = 0) -> Iterator[str]:
    """The lines start … reviews - 1 of the dump of this seed."""
    writer = Writer(seed)
    return (writer.line(index) for index in range(start, reviews))


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """A stream to a file that appears under its name only when whole.

    Gzip carries neither time nor name, so the same reviews give the same bytes.
    """
    with storage.atomic_path(path) as temporary, open(temporary, "wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as stream:
                yield cast(IO[bytes], stream)
        else:
            yield file


def write_sample(path: str | Path, reviews: int, seed: int) -> dict[str, Any]:
    """Writes the dump and returns what `run` prints."""
    if reviews < 1:
        raise ValueError(f"reviews is {reviews}; it must be at least 1")
    path = Path(path)
    writer = Writer(seed)
    with _written(path) as stream:
        for start in range(0, reviews, 1_000):
            block = [writer.line(index) for index in range(start, min(start + 1_000, reviews))]
            stream.write(("\n".join(block) + "\n").encode())
    return {
        "path": str(path),
        "reviews": reviews,
        "seed": seed,
        "bytes": path.stat().st_size,
        "mess": mess_counts(reviews),
    }


def run(argv: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        prog="python -m beam_jobs.sample_dump", description="Write a synthetic review dump."
    )
    parser.add_argument("--reviews", type=int, default=20_000, help="lines to write, messy ones included (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same bytes (%(default)s)")
    parser.add_argument(
        "--output", default="sample.json.gz", help="file to write, gzip if it ends in .gz (%(default)s)"
    )
    arguments = parser.parse_args(argv)
    try:
        return write_sample(arguments.output, arguments.reviews, arguments.seed)
    except (ValueError, OSError) as error:
        raise UserMistake(f"{arguments.output}: {error}") from error


if __name__ == "__main__":
    main(run)
