"""Classes as people type them, by all values of a column: which are one class, none, or several.
Where MIN_SEVERAL of the cells have several the task is multi-label, and an empty list is none of
the classes; elsewhere such a cell gives no class.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import xxhash

from amazon_electra.beam_jobs.core.errors import show_option
from amazon_electra.beam_jobs.labels.stars import TABLES, strip_quotes

LABEL = "label."  # what the column of a label begins with, in a mapping and in a corpus
TASK = "label:"  # what its task begins with
SEVERAL = "\x1f"  # between the classes of a text, which are in order; by itself an empty list
CONTRADICTED = "contradictions"  # folder of JSON lines: texts whose copies have several classes
MIN_SEVERAL = 0.01  # of the cells with a value, from which on a column is multi-label
MISSING = frozenset(TABLES["missing"])  # folded
INVISIBLE = dict.fromkeys([0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0xAD])
AROUND_SIGNS = re.compile(r"\s*([>/|])\s*")  # spaces around the signs of a path
PATH_SIGNS = (">", "/")
NUMBER = re.compile(r"([-+]?)0*(\d+)(?:[.,]0+)?")
WHOLE_NUMBER = re.compile(r"^(-?\d+)\.0+$")
TRUTH = {"true": "1", "false": "0"}
DELIMITERS = "|;"  # between several values in a cell, where one stands alone elsewhere
MIN_SINGLE = 0.9  # of the cells with a delimiter have such a value, or none is a list
MAX_SPELLINGS = 1_000  # distinct values that a unit reports: a column with more holds no classes
MAX_CHARACTERS = 200  # of a class
SHOWN = 5


def split_classes(found: str) -> list[str]:
    """Return the classes that a multi-label column of a corpus has in a cell, none for ""."""
    return found.split(SEVERAL) if found else []


def join_values(values: Iterable[Any]) -> str:
    """Return several values, or one, as one text; the order and copies do not count."""
    return SEVERAL.join(sorted({str(value) for value in values if value is not None})) or SEVERAL


def parse_label(value: Any) -> str | None:
    """Return a class as text, None for no value: 1, 1.0 and "1" are one class, and so are a boolean
    and its name. What is nested or too long is no class.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float, Decimal)) or value != value:  # NaN
        return None
    text = WHOLE_NUMBER.sub(r"\1", strip_quotes(str(value).strip()))
    if text.lower() in TRUTH:
        text = text.lower()
    return text if 0 < len(text) <= MAX_CHARACTERS else None


def clean(value: str) -> str:
    """Return a value as it is shown: composed (NFC), without characters that nobody sees, with one
    space for any.
    """
    return " ".join(unicodedata.normalize("NFC", value).translate(INVISIBLE).split())


def fold(value: str) -> str:
    """Return what a value shares with its other spellings: case, spaces, how an accent is written,
    zeros before and after a number and the names of 1 and 0 do not count.
    """
    folded = AROUND_SIGNS.sub(r"\1", clean(value)).casefold()
    if number := NUMBER.fullmatch(folded):
        return f"{number[1].replace('+', '')}{number[2]}"
    return TRUTH.get(folded, folded)


def take_first_level(value: str | None, sign: str) -> str | None:
    """Return the first level of a path such as `Refund > Refused`; a list of values has none."""
    if value is None or SEVERAL in value:
        return None
    return clean(value.partition(sign)[0]) or None


@dataclass(frozen=True)
class LabelValues:
    """What the values of a column are: by their folded form the class."""

    folds: bool = True
    delimiters: str = ""  # between several values in a cell
    names: Mapping[str, str] = field(default_factory=dict)
    is_multilabel: bool = False  # whether a text may have several of the classes

    def find_class(self, value: str | None) -> str | None:
        """Return the class of a value as typed; None without one, or with several. Of a multi-label
        column the classes, in order, with SEVERAL between them; "" for an empty list.
        """
        if not value:
            return None
        parts = self.split_cell(value)
        names = {self.names.get(fold(part), part) if self.folds else part for part in parts}
        if self.is_multilabel:
            return SEVERAL.join(sorted(names)) if names or value == SEVERAL else None
        return names.pop() if len(names) == 1 else None

    def split_cell(self, value: str) -> list[str]:
        """Return the values of a cell, as typed; none for a sign of a missing one."""
        parts = value.split(SEVERAL)
        for delimiter in self.delimiters:
            parts = [part.strip() for whole in parts for part in whole.split(delimiter)]
        return [part for part in parts if part and not (self.folds and fold(part) in MISSING)]


def decide_values(counts: Mapping[str, int], folds: bool = True) -> LabelValues:
    """Return what the values of a column are, by how often each occurs."""
    known = LabelValues(folds, _find_delimiters(counts) if folds else "")
    sizes, spellings = Counter[bool](), defaultdict[str, Counter[str]](Counter)
    for value, n in counts.items():
        if parts := known.split_cell(value):
            sizes[len(set(parts)) > 1] += n
        for part in parts:
            spellings[fold(part) if folds else part][clean(part) if folds else part] += n
    names = {
        folded: min(typed, key=lambda name: (-typed[name], name))
        for folded, typed in spellings.items()
    }
    is_multilabel = 0 < MIN_SEVERAL * sizes.total() <= sizes[True]
    return replace(known, is_multilabel=is_multilabel, names=names)


def _find_delimiters(counts: Mapping[str, int]) -> str:
    """Return the signs that delimit several values in a cell: nearly all values with one have a
    part that stands alone in other cells.
    """
    found = ""
    for delimiter in DELIMITERS:
        alone = {fold(value) for value in counts if delimiter not in value}
        cells = [cell.split(delimiter) for cell in counts if delimiter in cell]
        known = [cell for cell in cells if any(part and fold(part) in alone for part in cell)]
        if cells and len(known) >= MIN_SINGLE * len(cells):
            found += delimiter
    return found


def hash_value(value: str | None, folds: bool) -> int:
    """Return 32 bits that spellings of a class share; 0 for no value."""
    if value is None or value == SEVERAL or (folds and fold(value) in MISSING):
        return 0
    parts = {fold(part) for part in re.split(r"[|;\x1f]", value)} if folds else {value}
    return xxhash.xxh32_intdigest(SEVERAL.join(sorted(parts)).encode("utf-8", "surrogatepass"))


def offer_first_level(classes: Iterable[str], column: str) -> str:
    """Return how the first levels of paths become a task, where most classes are paths."""
    names = list(classes)
    for sign in PATH_SIGNS:
        if 2 * sum(sign in name for name in names) > len(names):
            return f"{show_option('--label', column + sign)} reads the first levels of paths"
    return ""


def keep_frequent(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(Counter(dict(sorted(counts.items()))).most_common(MAX_SPELLINGS)))
