"""Loads the words and sentence frames of the synthetic sample from lexicon.json.

Opinion words come in families. A family belongs to one aspect and one polarity (durability praised,
taste blamed, …), and every opinion word belongs to exactly one family (a test checks it), so the
only way to learn what a rare word means is from the words beside it.
"""

import json
from importlib import resources
from typing import Any, NamedTuple


class Aspect(NamedTuple):
    """One side of a product, with the words that praise and blame it."""

    name: str
    subjects: tuple[str, ...]
    praise: tuple[str, ...]
    blame: tuple[str, ...]


class Category(NamedTuple):
    """A product category, with its products and the names of the aspects its reviews mention."""

    name: str
    products: tuple[str, ...]
    aspects: tuple[str, ...]


def _load_words(entry: dict[str, Any]) -> dict[str, Any]:
    """Turn the lists of a JSON object into tuples, which do not change."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in entry.items()}


_LEXICON = _load_words(
    json.loads(resources.files(__package__).joinpath("lexicon.json").read_text())
)
ASPECTS = tuple(Aspect(**_load_words(entry)) for entry in _LEXICON["aspects"])
CATEGORIES = tuple(Category(**_load_words(entry)) for entry in _LEXICON["categories"])
PEOPLE: tuple[str, ...] = _LEXICON["people"]
PLACES: tuple[str, ...] = _LEXICON["places"]
TIMES: tuple[str, ...] = _LEXICON["times"]
SPANS: tuple[str, ...] = _LEXICON["spans"]
COLORS: tuple[str, ...] = _LEXICON["colors"]
BRANDS: tuple[str, ...] = _LEXICON["brands"]
FRAMES: tuple[str, ...] = _LEXICON["frames"]
"""Opinions: {s} subject, {v} verb, {d} adverb, {a} {b} {c} {e} opinion words of one family."""
VERBS: tuple[str, ...] = _LEXICON["verbs"]
PLAIN_ADVERBS: tuple[str, ...] = _LEXICON["plain_adverbs"]
HEDGES: tuple[str, ...] = _LEXICON["hedges"]
FILLERS: tuple[str, ...] = _LEXICON["fillers"]
TITLES: tuple[str, ...] = _LEXICON["titles"]
ACCENTS: tuple[str, ...] = _LEXICON["accents"]
