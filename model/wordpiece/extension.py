"""Extends a vocabulary by the words of a corpus that it cuts into the most pieces.

A word costs its pieces beyond the first, each time it occurs. The entries that were there keep
their ids; a new one begins, where weights are loaded, as the mean of the pieces it had before
(model/published/vocabulary.py).
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from beam_jobs.job.errors import UserError
from model.published.tokenizer import load_published_tokenizer
from model.wordpiece.tokenizer import build_tokenizer_of, list_entries


class CostlyWord(NamedTuple):
    """A word that is cut, and what that costs in the whole sample."""

    word: str
    occurrences: int
    tokens: int
    """Saved if the word had an entry: (pieces - 1) · count."""


def load_extended_from(folder: Path) -> Tokenizer:
    """Return the tokenizer that is to be extended."""

    def fail(text: str) -> UserError:
        return UserError(f"--extend {folder}: {text}")

    return load_published_tokenizer(folder, fail)


def count_words(tokenizer: Tokenizer, batches: Iterable[list[str]]) -> Counter[str]:
    """Return how often each word occurs in sentences, as the tokenizer normalizes and splits."""
    counts: Counter[str] = Counter()
    for sentences in batches:
        for sentence in sentences:
            text = tokenizer.normalizer.normalize_str(sentence)
            counts.update(w for w, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
    return counts


def find_costliest(
    tokenizer: Tokenizer, counts: Counter[str], at_most: int, least_count: int
) -> list[CostlyWord]:
    """Return the words that cost the most tokens, costliest first, equal ones by the alphabet.

    Words that are unknown cost nothing, and those that occur less than `least_count` times are left
    out.
    """
    costly = []
    for word, count in counts.items():
        pieces = len(tokenizer.model.tokenize(word)) if count >= least_count else 1
        if pieces > 1:
            costly.append(CostlyWord(word, count, (pieces - 1) * count))
    return sorted(costly, key=lambda one: (-one.tokens, one.word))[:at_most]


def extend_by_costliest(
    tokenizer: Tokenizer, batches: Iterable[list[str]], at_most: int, least_count: int
) -> tuple[Tokenizer, list[CostlyWord]]:
    """Return a tokenizer with the costliest words of the texts besides, and which these are."""
    costly = find_costliest(tokenizer, count_words(tokenizer, batches), at_most, least_count)
    return extend_tokenizer(tokenizer, [one.word for one in costly]), costly


def extend_tokenizer(tokenizer: Tokenizer, words: Iterable[str]) -> Tokenizer:
    """Return a tokenizer with these words after the entries that were there."""
    entries, normalizer = list_entries(tokenizer), tokenizer.normalizer
    return build_tokenizer_of([*entries, *words], normalizer.lowercase, normalizer.strip_accents)
