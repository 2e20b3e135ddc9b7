"""N-grams that many held-out reviews share: a disclaimer under each e-mail, "for free in exchange
for my honest review", the words of a template. They say nothing about whether a review repeats
another one, so they count for nothing in that comparison (held_out.py).

Many are COMMON_SHARE of the distinct held-out reviews, and at least MIN_TEXTS. Of 79,278 Amazon
reviews (9,351 held out, so 19 are many) 157 are withheld with this limit, as with none; with 10,
which makes "one of the best books I have ever read" common, 80; with 5, 74. Of an e-mail's
disclaimer under each of 600 tickets no limit withholds 521, this one none.

Counted are dev and test reviews, each text once: copies of a held-out text among what is trained on
never weaken its protection. Texts of evaluation files are not counted, as a paragraph stands in
them once for each question about it. At a level, the number of a dump, only reviews of that dump
and earlier ones count, so that a later dump changes nothing of an earlier one.

MATCHES/NNN.common    NGRAM_TEXTS of a part of the buckets
MATCHES/FILE.counts   TEXT_NGRAMS of a file of held-out texts
"""

import math
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from beam_jobs.core import storage
from beam_jobs.text.spans import mark_firsts

MIN_TEXTS, MAX_TEXTS = 5, 100
COMMON_SHARE = 0.002
NGRAM_TEXTS = np.dtype([("run", "<u8"), ("dump", "<u4"), ("texts", "<u4")])
"""The hash of an n-gram, a dump, and how many distinct held-out reviews of it have the n-gram that
no earlier dump has; ALL instead of the hash counts all of them."""
TEXT_NGRAMS = np.dtype([("level", "<u4"), ("row", "<u4"), ("runs", "<u4")])
"""A level, the row number of a text in its file, and how many of its n-grams are common then."""
ALL = np.uint64(0)
MIN_OWN = 8
"""N-grams beside common ones that a text needs to be compared by them: with fewer there are fewer
words beside the phrase, and it is withheld only if the words are equal, like any text of so few
words. "Nice product. I received this …" has two."""
CHUNK_ROWS = 1 << 20
"""Rows of a file of held-out n-grams that are held at once, 24 MiB."""


def is_whole(runs: np.ndarray) -> np.ndarray:
    """Return, per hash, whether it is that of a whole text (`overlaps.list_runs`)."""
    return (runs & np.uint64(1)).astype(bool)


def count_texts(rows: np.ndarray, dumps: np.ndarray) -> np.ndarray:
    """Return NGRAM_TEXTS of the n-grams that may be common, by n-gram and dump, and how many texts
    there are; `rows` are HELD_RUN of held-out reviews, `dumps` the number of the dump of each.
    """
    runs = rows["run"]
    whole = is_whole(runs)
    ordered = np.sort(runs[~whole])
    step = MIN_TEXTS - 1
    often = np.unique(ordered[step:][ordered[step:] == ordered[:-step]])
    chosen = np.flatnonzero(~whole & np.isin(runs, often))
    order = chosen[np.lexsort((dumps[chosen], rows["text"][chosen], runs[chosen]))]
    order = order[mark_firsts(runs[order], rows["text"][order])]  # a copy is of its earliest dump
    found = [_add_up(runs[order], dumps[order])]
    texts = np.flatnonzero(whole)
    texts = texts[np.lexsort((dumps[texts], runs[texts]))]
    texts = texts[mark_firsts(runs[texts])]
    found.append(_add_up(np.full(len(texts), ALL), dumps[texts]))
    return np.concatenate(found)


def _add_up(runs: np.ndarray, dumps: np.ndarray) -> np.ndarray:
    order = np.lexsort((dumps, runs))
    is_first = mark_firsts(runs[order], dumps[order])
    counted = np.empty(int(is_first.sum()), NGRAM_TEXTS)
    counted["run"], counted["dump"] = runs[order][is_first], dumps[order][is_first]
    counted["texts"] = np.bincount(np.cumsum(is_first) - 1, minlength=len(counted))
    return counted


class CommonNGrams:
    """Which n-grams are common at each level, by the NGRAM_TEXTS of all parts."""

    def __init__(self, counted: Iterable[np.ndarray]) -> None:
        self._counted = np.concatenate([np.empty(0, NGRAM_TEXTS), *counted])
        self._levels: dict[int, np.ndarray] = {}

    @classmethod
    def read(cls, paths: Sequence[str]) -> "CommonNGrams":
        """Return those that `write_common` left of all parts."""
        packed = storage.map_paths(storage.read_bytes, sorted(paths))
        return cls(np.frombuffer(part, NGRAM_TEXTS) for part in packed)

    def list_at(self, level: int) -> np.ndarray:
        """Return the hashes of the common n-grams at a level, ascending."""
        if level not in self._levels:
            rows = self._counted[self._counted["dump"] <= level]
            is_total = rows["run"] == ALL
            many = math.ceil(COMMON_SHARE * int(rows["texts"][is_total].sum()))
            rows = rows[~is_total]
            runs, which = np.unique(rows["run"], return_inverse=True)
            texts = np.bincount(which, rows["texts"], len(runs))
            self._levels[level] = runs[texts >= min(max(many, MIN_TEXTS), MAX_TEXTS)]
        return self._levels[level]


def count_ngrams(
    chunks: Iterable[np.ndarray], common: CommonNGrams, levels: Sequence[int]
) -> np.ndarray:
    """Return TEXT_NGRAMS by level and row; `chunks` are the HELD_RUN of a file of texts."""
    keys, counts = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for rows in chunks:
        for level in levels:
            owners = rows["row"][np.isin(rows["run"], common.list_at(level))]
            found, n = np.unique(owners.astype(np.uint64), return_counts=True)
            keys.append(np.uint64(level) << np.uint64(32) | found)
            counts.append(n)
    distinct, which = np.unique(np.concatenate(keys), return_inverse=True)
    counted = np.empty(len(distinct), TEXT_NGRAMS)
    counted["level"], counted["row"] = distinct >> np.uint64(32), distinct & np.uint64(0xFFFFFFFF)
    counted["runs"] = np.bincount(which, np.concatenate(counts), len(distinct))
    return counted


def write_counts(
    path: str, folder: str, kind: np.dtype, common: Sequence[str], levels: Sequence[int]
) -> Iterator[str]:
    """Write TEXT_NGRAMS of a file of HELD_RUN (`kind`), once, and yield the name of the file, if
    any of its texts has a common n-gram; `common` are the paths of what `write_common` left.
    """
    name = name_file(path)
    written = storage.join_path(folder, f"{name}.counts")
    if not storage.exists(written):
        known = CommonNGrams.read(common)
        chunks = _read_chunks(path, kind) if any(map(len, map(known.list_at, levels))) else ()
        storage.write_bytes(written, count_ngrams(chunks, known, levels).tobytes())
    if storage.get_size(written):
        yield name


def name_file(path: str) -> str:
    """Return the name of a file of held-out texts without its ending."""
    return os.path.basename(path).removesuffix(".heldout")


def _read_chunks(path: str, kind: np.dtype) -> Iterator[np.ndarray]:
    size, step = storage.get_size(path), CHUNK_ROWS * kind.itemsize
    for begin in range(0, size, step):
        yield np.frombuffer(storage.read_range(path, begin, min(size, begin + step)), kind)


def discount(rows: np.ndarray, packed: bytes, level: int, common: np.ndarray) -> np.ndarray:
    """Return HELD_RUN of a file's texts without the n-grams that are common at a level, in sizes
    that do not count them; of a text of little else only its hash as a whole. `packed` are the
    TEXT_NGRAMS of the file.
    """
    counted = np.frombuffer(packed, TEXT_NGRAMS)
    counted = counted[counted["level"] == level]
    if not len(counted):
        return rows
    rows = rows[~np.isin(rows["run"], common)]
    places = np.searchsorted(counted["row"], rows["row"])
    has_some = counted["row"].take(places, mode="clip") == rows["row"]
    rows["size"][has_some] -= counted["runs"][places[has_some]]
    return rows[~has_some | (rows["size"] >= MIN_OWN) | is_whole(rows["run"])]
