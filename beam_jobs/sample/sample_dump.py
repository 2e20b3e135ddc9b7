"""Writes a synthetic review dump of any size, with the mess of real dumps in known amounts.

Line i depends on (seed, i) alone (a repeated line copies an earlier one of the same thousand). A
review describes two or three aspects of a product with opinion words of one aspect and polarity.
"""

import gzip
import json
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from random import Random
from typing import Annotated, Any

from typing_extensions import Doc

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import make_writable_folder

LEXICON: dict[str, Any] = json.loads(
    resources.files(__package__).joinpath("lexicon.json").read_text(encoding="utf-8")
)
"""Frames are opinions: {s} subject, {v} verb, {d} adverb, {a} {b} {c} {e} opinion words of one
family."""
MESS_PER_THOUSAND: dict[str, int] = LEXICON["mess_per_thousand"]
"""Lines of each kind in every 1,000, exactly; none is of two kinds, and 728 are plain."""
LONG_TEXT = 5_000  # characters a very_long text exceeds
_STARS = (5.0,) * 50 + (4.0,) * 17 + (3.0,) * 9 + (2.0,) * 9 + (1.0,) * 15  # percent
# stars -> the possible polarities of a review's aspects (1 praise, 0 blame) and whether its words
# are hedged
_OPINIONS = {float(stars): opinions for stars, opinions in LEXICON["opinions"].items()}
_STAR_TITLES = ("", "One Star", "Two Stars", "Three Stars", "Four Stars", "Five Stars")
_DAYS = 4_000  # review dates span the days from 2007-06-01, as in the 2018 release
_FIRST_DAY = 1_180_656_000  # 2007-06-01, seconds since 1970
_ID_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_STRIDE = 389  # coprime to 1,000: scatters the kinds of mess over the thousand
_SLOTS = ["plain"] * 1_000  # the kind of each of 1,000 lines: plain or a key of MESS_PER_THOUSAND
for _place, _kind in enumerate(k for k, n in MESS_PER_THOUSAND.items() for _ in range(n)):
    _SLOTS[_STRIDE * (_place + 1) % 1_000] = _kind
_ORIGINALS = {
    slot: max(s for s in range(max(slot - 6, 1)) if _SLOTS[s] == "plain")
    for slot, kind in enumerate(_SLOTS)
    if kind.startswith("repeated")
}  # the plain slot that a repeated line copies, if possible not among the last six
_BY_NAME = {aspect["name"]: aspect for aspect in LEXICON["aspects"]}
_CATEGORY_ASPECTS = [
    (category["products"], [_BY_NAME[name] for name in category["aspects"]])
    for category in LEXICON["categories"]
]


class ReviewWriter:
    """Writes the reviews of one seed, line by line."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = Random()

    def write_line(self, index: int) -> str:
        """Return the line with this index, without its line end."""
        slot = index % 1_000
        kind = _SLOTS[slot]
        original = index - slot + _ORIGINALS.get(slot, slot)
        if kind == "repeated_line":
            return self.write_line(original)
        record = self._write_record(index)
        if kind == "missing_text":
            del record["reviewText"]
        elif kind == "repeated_text":
            copied = self._write_record(original)
            record |= {key: copied[key] for key in ("reviewText", "overall", "summary")}
        else:
            record["reviewText"] = self._add_mess(record["reviewText"], kind, record["overall"])
        line = json.dumps(record)
        return line[: len(line) * 2 // 3] if kind == "broken_line" else line

    def _add_mess(self, text: str, kind: str, stars: float) -> str:
        """Return the text with one kind of mess in it; only a typo changes a word."""
        pick, first, rest = self._pick_one, *text.split(". ", 1)
        match kind:
            case "empty_text":
                return ""
            case "one_word":
                aspect = pick(LEXICON["aspects"])
                return str(pick(aspect["praise" if stars >= 3 else "blame"])).capitalize()
            case "very_long":
                while len(text) <= LONG_TEXT:
                    products, aspects = pick(_CATEGORY_ASPECTS)
                    text += f" {self._write_text(stars, self._pick_scene(products), aspects)}"
            case "html_tags":
                return f"<b>{first}.</b><br /><br />{rest}"
            case "entities":
                return f"{text} &#34;Box &amp; manual&#34; are &quot;as shown&quot;."
            case "no_space":
                return text.replace(". ", ".")
            case "line_breaks":
                return text.replace(". ", ".\n")
            case "accents":
                return f"{text} {pick(LEXICON['accents'])}"
            case "personal":
                number = int(self._rng.random() * 100)
                address = f"{pick(LEXICON['people'])}{number}@example.com"
                return f"{text} Write to {address} or call 555-01{number:02d}."
            case "video_marker":
                return f"[[VIDEOID:{self._make_identifier('', 12).lower()}]] {text}"
            case "typo":  # the first two different lower-case neighbours after a random place
                for i in range(int(self._rng.random() * (len(text) - 12)), len(text) - 1):
                    if text[i] != text[i + 1] and text[i].islower() and text[i + 1].islower():
                        return text[:i] + text[i + 1] + text[i] + text[i + 2 :]
        return text

    def _write_record(self, index: int) -> dict[str, Any]:
        self._rng.seed((self._seed << 40) + index)
        random, pick = self._rng.random, self._pick_one
        stars = _STARS[int(random() * 100)]
        products, aspects = pick(_CATEGORY_ASPECTS)
        scene = self._pick_scene(products)
        text = self._write_text(stars, scene, aspects)
        second = _FIRST_DAY + int(random() * _DAYS) * 86_400
        record = {
            "overall": stars,
            "verified": random() < 0.85,
            "reviewTime": time.strftime("%m %d, %Y", time.gmtime(second)),
            "reviewerID": self._make_identifier("A", 10),
            "asin": f"B0{int(random() ** 3 * 30_000):08d}",
            "reviewerName": f"{pick(LEXICON['people']).title()} {self._make_identifier('', 1)}.",
            "reviewText": text,
            "summary": pick(LEXICON["titles"]).format_map(
                scene | {"stars": _STAR_TITLES[int(stars)]}
            ),
            "unixReviewTime": second,
        }
        if random() < 0.1:
            record["vote"] = str(2 + int(random() * 20))
        if random() < 0.3:
            record["style"] = {"Color:": f" {scene['color']}"}
        return record

    def _pick_scene(self, products: list[str]) -> dict[str, str]:
        """Pick the values of the frames' fields that stay the same within a review."""
        pick, random, brands = self._pick_one, self._rng.random, LEXICON["brands"]
        return {
            "product": pick(products),
            "p": pick(LEXICON["people"]),
            "place": pick(LEXICON["places"]),
            "time": pick(LEXICON["times"]),
            "span": pick(LEXICON["spans"]),
            "color": pick(LEXICON["colors"]),
            # a few brands are everywhere, most are rare
            "brand": brands[int(random() ** 4 * len(brands))],
            "n": str(4 + int(random() ** 2 * 96)),
        }

    def _write_text(
        self, stars: float, scene: dict[str, str], aspects: list[dict[str, Any]]
    ) -> str:
        """Write a sentence per aspect and one or two neutral ones, the first often in front."""
        random, pick = self._rng.random, self._pick_one
        polarities, hedged = pick(_OPINIONS[stars])
        fillers = [
            pick(LEXICON["fillers"]).format_map(scene) for _ in range(1 + int(random() * 1.5))
        ]
        at = int(random() * len(aspects))
        opinions = []
        for step, polarity in enumerate(polarities):
            aspect = aspects[(at + step * 2) % len(aspects)]
            words = aspect["praise" if polarity else "blame"]
            n, third = len(words), len(words) // 3
            a = int(random() * n)
            # steps of less than a third of the family never come back to a word
            b = (a + 1 + int(random() * third)) % n
            c = (b + 1 + int(random() * third)) % n
            e = (c + 1 + int(random() * (third - 3))) % n
            scene |= {"a": words[a], "b": words[b], "c": words[c], "e": words[e]}
            scene["A"] = words[a].capitalize()  # of the last opinion, for the title too
            scene["s"] = pick(aspect["subjects"])
            scene["v"] = pick(LEXICON["verbs"])
            scene["d"] = pick(LEXICON["hedges" if hedged else "plain_adverbs"])
            opinions.append(pick(LEXICON["frames"]).format_map(scene))
        sentences = fillers[:1] + opinions + fillers[1:] if random() < 0.7 else opinions + fillers
        return " ".join(sentences)

    def _make_identifier(self, start: str, letters: int) -> str:
        number = int(self._rng.random() * 36**letters)
        return start + "".join(_ID_LETTERS[number // 36**n % 36] for n in range(letters))

    def _pick_one(self, values: Any) -> Any:
        return values[int(self._rng.random() * len(values))]


def generate_lines(reviews: int, seed: int) -> Iterator[str]:
    """Yield the first lines of the dump of this seed."""
    return map(ReviewWriter(seed).write_line, range(reviews))


def write_sample(
    output: Annotated[str | Path, Doc("File to write, gzip if it ends in .gz")] = "sample.json.gz",
    reviews: Annotated[int, Doc("Lines to write, messy ones included")] = 20_000,
    seed: Annotated[int, Doc("The same seed gives the same bytes")] = 0,
) -> dict[str, Any]:
    """Write a synthetic dump of reviews; return its numbers. UserError where that is impossible."""
    require(reviews >= 1, "must be at least 1", "reviews", reviews)
    path = Path(output)
    make_writable_folder("output", path.absolute().parent)
    lines = (f"{line}\n".encode() for line in generate_lines(reviews, seed))
    with storage.atomic_path(path) as temporary, open(temporary, "wb") as file:
        if path.suffix == ".gz":  # without time and name, so the same reviews give the same bytes
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                packed.writelines(lines)
        else:
            file.writelines(lines)
    size = path.stat().st_size
    return {"path": str(path), "reviews": reviews, "seed": seed, "bytes": size}


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(write_sample)
