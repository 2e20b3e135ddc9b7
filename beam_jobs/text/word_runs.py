"""Hashes words, texts and runs of words, to find texts that are the same, or nearly so.

Words are runs of letters and digits, case folded, and each character of scripts without spaces.
Prefix sums of bytes times powers of an odd base, modulo 2^64, give their hashes.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from amazon_electra.beam_jobs.core.languages import UNSPACED

BATCH_TEXTS = 256  # stay in the processor's cache: 10 µs a review, 12 with 512
BASE, WORD_BASE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
INVERSE = pow(int(BASE), -1, 1 << 64)
FOLD_ASCII = bytes(
    ord(chr(b).lower()) if b < 0x80 and chr(b).isalnum() else b if b >= 0x80 else 0x20
    for b in range(256)
)  # maps letters to lower case and signs to spaces; bytes of other characters stay
NON_ASCII_SIGNS = re.compile(
    "[\u0080-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7\u060c\u061b\u061f\u06d4"
    "\u0964\u0965\u2000-\u206f\u2190-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u303f\u30fb"
    "\ufe00-\ufe6f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\U0001f000-\U0001faff]"
)  # signs beyond ASCII that are no letters: quotes, dashes, symbols, emoji, of other scripts too


@dataclass(frozen=True)
class HashedWords:
    """The words of some texts, one after another."""

    hashes: np.ndarray  # uint64 [words]
    owners: np.ndarray  # uint32 [words]: the index of the text of each, ascending
    texts: int

    def count_words(self) -> np.ndarray:
        """Return the number of words of each text, int64 [texts]."""
        return np.bincount(self.owners, minlength=self.texts)

    def hash_texts(self) -> np.ndarray:
        """Return a hash of the words of each text, uint64 [texts]; 0 for a text without words."""
        counts = self.count_words()
        ends = np.cumsum(counts)
        starts = ends - counts
        places = np.arange(len(self.hashes)) - np.repeat(starts, counts)
        longest = 1 << int(counts.max(initial=1)).bit_length()
        weights = compute_powers(int(WORD_BASE), longest)[places]
        sums = np.zeros(len(self.hashes) + 1, dtype=np.uint64)
        np.cumsum(self.hashes * weights, out=sums[1:])
        hashes = sums[ends] - sums[starts]
        return (hashes ^ (hashes >> np.uint64(29))) * BASE

    def hash_runs(self, words_in_run: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the hashes (uint64) of all runs of so many words, and the text index of each."""
        count = len(self.hashes) - words_in_run + 1
        if count <= 0:
            return np.empty(0, np.uint64), np.empty(0, np.uint32)
        runs = np.zeros(count, dtype=np.uint64)
        for k in range(words_in_run):
            runs = runs * WORD_BASE + self.hashes[k : k + count]
        within = self.owners[:count] == self.owners[words_in_run - 1 :]
        runs ^= runs >> np.uint64(29)
        return (runs * BASE)[within], self.owners[:count][within]


def split_words(texts: list[str]) -> HashedWords:
    """Return the words of texts of one line each."""
    lines = list(map(_encode_line, texts))
    hashes, starts = hash_words(np.frombuffer(b" ".join(lines).translate(FOLD_ASCII), np.uint8))
    line_ends = np.cumsum(np.array([len(line) + 1 for line in lines], dtype=np.int64))
    words_until = np.searchsorted(starts, line_ends)
    owners = np.repeat(np.arange(len(texts), dtype=np.uint32), np.diff(words_until, prepend=0))
    return HashedWords(hashes, owners, len(texts))


def _encode_line(text: str) -> bytes:
    if text.isascii():
        return text.encode()
    return space_words(text).casefold().encode("utf-8", "replace")


def space_words(text: str) -> str:
    """Return a text with spaces for signs beyond ASCII and around characters that are words."""
    return UNSPACED.sub(r" \g<0> ", NON_ASCII_SIGNS.sub(" ", text))


def hash_words(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash (uint64) and the first byte of every word; spaces separate words."""
    is_word = np.zeros(len(data) + 2, dtype=bool)
    np.not_equal(data, 0x20, out=is_word[1:-1])
    edges = np.flatnonzero(is_word[1:] != is_word[:-1])
    starts, ends = edges[::2], edges[1::2]
    size = 1 << max(len(data), 1).bit_length()
    powers, inverses = (compute_powers(base, size) for base in (int(BASE), INVERSE))
    sums = np.zeros(len(data) + 1, dtype=np.uint64)
    np.cumsum(data * powers[: len(data)], out=sums[1:])
    return (sums[ends] - sums[starts]) * inverses[starts], starts


@lru_cache(6)
def compute_powers(base: int, count: int) -> np.ndarray:
    """Return base^i modulo 2^64 for i below `count`, uint64."""
    powers = np.full(count, base, dtype=np.uint64)
    powers[0] = 1
    return np.cumprod(powers, dtype=np.uint64)
