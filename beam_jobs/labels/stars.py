"""Stars on any scale: what a value says, and the stars 1 to 5 it gives. The scale is found from all
values of a dump's column; what they leave open ends in one line with choices for `--stars-scale`.
"""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import UserError, show_option

TABLES: dict[str, Any] = tomllib.loads(
    resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8")
)
NUMBER = r"([0-9]+(?:[.,][0-9]+)?)"
PLAIN = re.compile(rf"([-+]?{NUMBER[1:]}(?:[\s-]*(?:{TABLES['unit']}))?", re.IGNORECASE)
PERCENT = re.compile(rf"{NUMBER}\s*%")
OUT_OF = re.compile(
    rf"{NUMBER}\s*(?:{TABLES['unit']})?\s*(?:{TABLES['out_of']})\s*{NUMBER}\D*", re.IGNORECASE
)
TOP_FIRST = re.compile(rf"{NUMBER}\s*(?:つ星のうち|yıldız üzerinden)\s*{NUMBER}\D*")
LEAD = re.compile(r"(?:rated|rating)\s*:?\s*(?=\d)", re.IGNORECASE)
WORD = re.compile(r"(one|two|three|four|five)(?:[\s-]*stars?)?")
WORDS = {word: number for number, word in enumerate(["one", "two", "three", "four", "five"], 1)}
SYMBOLS = re.compile(r"([★⭐]\ufe0f?|\s)+([☆✩]|\s)*")
SCALE = re.compile(rf"(-?{NUMBER[1:]}-(-?{NUMBER[1:]}")
# a number and what it stands for, as forms write it: "5 - Excellent", "1: very bad"
NUMBERED = re.compile(rf"{NUMBER}\s*(?:[-–—:=.)]\s*){{1,2}}([^\W\d_][^\d/%]*)")
BEST = re.compile(f"({TABLES['best']})", re.IGNORECASE)
REVERSED = -1  # instead of what a number is out of: it is 1, and its words call it the best
STYLE = re.compile("[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")  # of an emoji, and its colour of skin
MAX_CHARACTERS = 40  # what is longer is no number of stars
NO, YES = 1e6, 1e6 + 1  # what booleans stand for among numbers
TRUTH = {"true": YES, "false": NO, "👍": YES, "👎": NO}
FACES = {face: int(stars) for stars, faces in TABLES["faces"].items() for face in faces}
MIN_SHARE = 0.99  # of a column's numbers that 1 to 5 must hold; others, such as 0, are unknown
MIN_VALUES = 100  # ratings that show that none is five stars, or how a single file is
MAX_SHOWN = 12  # values in a message
BINARY = "binary"
NPS = "nps"  # answers from 0 to 10: up to 6 detractors, from 9 on promoters
# scales that are looked for besides 1 to 5, 0 to 4 and 0 to 5, and their steps; 0: any
SCALES = (
    *(("0-1", 0), ("0.1-1", 0.1), ("0.2-1", 0.2), ("0.5-5", 0.5), ("0-10", 0), ("1-10", 0)),
    *(("2-10", 2), ("0-100", 0), ("1-100", 0), ("10-100", 10), ("20-100", 20)),
)
Rating = tuple[float, float]  # a number, and what it is out of (0: it does not say)


@dataclass(frozen=True)
class Scale:
    """What the numbers of a column go from and to; stars are linear in between."""

    name: str

    def map_ratings(self, ratings: np.ndarray) -> np.ndarray:
        """Return stars, int8, of ratings, halves up; 0 where they are none or off the scale.

        Of a binary label 2 stands for no, 4 for yes: right for polarity, a guess for stars. Of NPS
        detractors have 1, passives 3, promoters 5.
        """
        if self.name == BINARY:
            no, yes = np.isin(ratings, (-1, 0, NO)), np.isin(ratings, (1, YES))
            return (2 * no + 4 * yes).astype(np.int8)
        if self.name == NPS:
            fits = (ratings >= 0) & (ratings <= 10)
            return np.where(fits, 1 + 2 * (ratings > 6) + 2 * (ratings > 8), 0).astype(np.int8)
        worst, best = parse_scale(self.name)
        with np.errstate(invalid="ignore"):
            fits = (ratings >= min(worst, best)) & (ratings <= max(worst, best))
        places = 1 + 4 * (np.where(fits, ratings, worst) - worst) / (best - worst)
        return np.where(fits, np.floor(np.round(places, 6) + 0.5), 0).astype(np.int8)


FIVE = Scale("1-5")


def parse_scale(name: str) -> tuple[float, float]:
    """Return the worst and the best of a scale such as 1-10, or 6-1 where 1 is the best."""
    match = SCALE.fullmatch(name)
    worst, best = (float(part.replace(",", ".")) for part in match.groups()) if match else (0, 0)
    if worst == best:
        raise UserError(
            f"write WORST-BEST, such as 1-10 or 6-1, or {BINARY} or {NPS}", "stars_scale", name
        )
    return worst, best


def check_scale(name: str | None) -> None:
    if name not in (None, BINARY, NPS):
        parse_scale(name)


@lru_cache(4096, typed=True)  # True is not 1
def parse_rating(value: Any) -> Rating | None:
    """Return the number that a value says and what it is out of, 0 where it does not say, REVERSED
    where 1 is the best; None for no number: 4, 4.0, "4,5", "4/5", "80%", "4 Sterne", "FOUR",
    "Rated 4 out of 5", "★★★★☆", True, "4 - Good", "🙂".
    """
    if isinstance(value, bool):
        return (YES if value else NO), 0
    if isinstance(value, (int, float, Decimal)):
        is_usual = value == value and -NO < value < NO  # NaN
        return (float(value), 0) if is_usual else None
    if not isinstance(value, str) or len(value) >= MAX_CHARACTERS:
        return None
    text = LEAD.sub("", strip_quotes(value.strip()), count=1)
    folded = STYLE.sub("", text).lower()
    if folded in TRUTH:
        return TRUTH[folded], 0
    if folded in FACES:
        return FACES[folded], 5
    if match := WORD.fullmatch(folded):
        return WORDS[match[1]], 0
    for pattern, of in ((PLAIN, 0), (PERCENT, 100), (OUT_OF, None), (TOP_FIRST, None)):
        if match := pattern.fullmatch(text):
            first, *more = (float(part.replace(",", ".")) for part in match.groups())
            last = more[0] if more else of or 0
            return (last, first) if pattern is TOP_FIRST else (first, last)
    if match := NUMBERED.fullmatch(text):
        number = float(match[1].replace(",", "."))
        return number, REVERSED if number == 1 and BEST.match(match[2]) else 0
    filled = text.count("★") + text.count("⭐")
    if filled and SYMBOLS.fullmatch(text):
        return filled, max(5, filled + text.count("☆") + text.count("✩"))
    return None


def strip_quotes(text: str) -> str:
    """Return a text without the quotes around all of it, which a program has written twice."""
    return text[1:-1].strip() if len(text) > 2 and text[0] == text[-1] == '"' else text


def show_rating(number: float) -> str:
    return {NO: "false", YES: "true"}.get(number, f"{number:g}")


def decide_scale(counts: Mapping[Rating, int], where: str, given: str | None = None) -> Scale:
    """Return the scale of ratings, by how often each occurs; `given` is the user's word, `where`
    names the column. Raises UserError where they leave it open.
    """
    if given or not counts:
        return Scale(given or FIVE.name)
    rated = {value: n for value, n in counts.items() if value[0] != -1}
    if len({number for number, _ in rated}) > 1 and min(rated)[0] >= 1:
        counts = rated  # -1 says beside them that there is no rating
    is_reversed = any(top == REVERSED for _, top in counts)
    tops = {top for _, top in counts if top} - {REVERSED}
    another = "another column with `--columns stars=NAME`"
    if len(tops) > 1 or (tops - {5} and any(number and not top for number, top in counts)):
        shown = " and ".join(f"{top:g}" for top in sorted(tops))
        raise UserError(f"{where}: its stars are on two scales, out of {shown}; give {another}")
    values = {number for number, _ in counts}
    choices = [f"{max(5, *values):g}-1"] if is_reversed else _list_scales(counts, values, tops)
    if len(choices) == 1 and not is_reversed:
        return Scale(choices[0])
    ordered = [show_rating(number) for number in sorted(values)]
    shown = ", ".join(ordered[:MAX_SHOWN]) + ", …" * (len(ordered) > MAX_SHOWN)
    ways = " or ".join(show_option("--stars-scale", choice) for choice in choices)
    raise UserError(
        f"{where}: its values {shown} fit more than one scale of stars; give it from the worst to "
        f"the best, {ways}, or {another}"
    )


def _list_scales(counts: Mapping[Rating, int], values: set[float], tops: set[float]) -> list[str]:
    """Return the scales that ratings may be on, by how often each occurs, their numbers, and what
    these are out of; one where it is certain.
    """
    whole = values <= {0, 1, NO, YES} and values & {0, NO}
    if (whole or values == {-1, 1}) and not tops:
        return [BINARY]
    total, low, high = sum(counts.values()), min(values), max(values | tops)
    fitting = sum(n for (number, _), n in counts.items() if 1 <= number <= 5)
    if fitting >= MIN_SHARE * total and tops <= {5}:
        largest = max((number for number in values if number <= 5), default=5)
        is_part = largest in (2, 3, 4) and not tops and len(values) > 1 and total >= MIN_VALUES
        return [f"1-{largest:g}", FIVE.name] if is_part else [FIVE.name]
    if low < 0:
        return [f"{low:g}-{high:g}", FIVE.name]
    if values == {0, 1, 2, 3, 4}:
        return ["0-4"]
    if low == 0 and high in (3, 4, 5):
        return [f"0-{high:g}", FIVE.name]
    found = []  # scales that end where the values do, hold all, and have them on their steps
    for name, step in SCALES:
        least, most = parse_scale(name)
        steps = [v / step for v in values] if step else []
        on_steps = all(math.isclose(n, round(n), abs_tol=1e-6) for n in steps)
        if most == high and least <= low and on_steps:
            found.append(name)
    if exact := [name for name in found if parse_scale(name)[0] == low]:
        return exact[:1]
    ordered = np.array(sorted(values))
    if len({tuple(Scale(name).map_ratings(ordered)) for name in found}) == 1:
        return found[:1]
    first = f"{min(low, 1):g}"
    return found or [f"{first}-{high:g}", f"{high:g}-{first}", FIVE.name]


def decide_scales(
    ratings: Mapping[str, Mapping[Rating, int]], where: str, given: str | None = None
) -> Scale:
    """Return the scale of a dump by the ratings of each of its files; UserError where it is open,
    or where a file by itself has another scale.
    """
    together: Counter[Rating] = Counter()
    for counts in ratings.values():
        together.update(counts)
    scale = decide_scale(together, where, given)
    for file, counts in ratings.items() if not given else ():
        if sum(counts.values()) >= MIN_VALUES and (own := decide_scale(counts, file)) != scale:
            raise UserError(
                f"{file}: its stars are on the scale {own.name}, those of the dump on "
                f"{scale.name}; leave it out, or give `--stars-scale {scale.name}`"
            )
    return scale


def encode_ratings(counts: Mapping[Rating, int]) -> dict[str, int]:
    return {f"{number!r}/{top!r}": n for (number, top), n in sorted(counts.items())}


def decode_ratings(counts: Mapping[str, int]) -> dict[Rating, int]:
    parts = ((name.partition("/"), n) for name, n in counts.items())
    return {(float(number), float(top)): n for (number, _, top), n in parts}
