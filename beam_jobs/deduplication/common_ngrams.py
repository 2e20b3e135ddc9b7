"""N-grams that many reviews share, such as a disclaimer, count for nothing where reviews are
compared with held-out texts (held_out.py).

MATCHES/NNNN.common   hashes, uint64, of the common n-grams of a bucket
MATCHES/FILE.counts   TEXT_NGRAMS of a file of held-out texts
"""

import math
import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.deduplication.buckets import HELD_RUN
from amazon_electra.beam_jobs.text.spans import find_runs, mark_firsts

MIN_TEXTS, MAX_TEXTS, MIN_HELD = 20, 800, 2
COMMON_SHARE = 0.002
HASH = np.dtype("<u8")
TEXT_NGRAMS = np.dtype([("row", "<u4"), ("runs", "<u4")])  # how many are common
MIN_OWN = 8  # n-grams beside common ones; with fewer a text is withheld only if words are equal
CHUNK_ROWS = 1 << 20  # rows of a file of held-out n-grams that are held at once, 24 MiB
SLOTS = 8  # of a HashFilter, for each hash: one of 8 others passes
WHOLE = np.uint64(1)  # the last bit of a hash: 1 for the words of a whole text, 0 for a run


def is_whole(runs: np.ndarray) -> np.ndarray:
    """Return, per hash, whether it is that of a whole text (`held_out.NGramHasher`)."""
    return (runs & WHOLE).astype(bool)


class HashFilter:
    """Lets hashes of a set pass, and few others, in a tenth of the time that a search takes."""

    def __init__(self, hashes: np.ndarray) -> None:
        self._mask = np.uint64((1 << (SLOTS * len(hashes)).bit_length()) - 1)
        self._is_there = np.zeros(int(self._mask) + 1, bool)
        self._is_there[self._find_slots(hashes)] = True

    def _find_slots(self, hashes: np.ndarray) -> np.ndarray:
        return ((hashes >> np.uint64(8)) & self._mask).astype(np.intp)  # the first bits: the bucket

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Return the places of the hashes that pass."""
        return np.flatnonzero(self._is_there[self._find_slots(hashes)])


class NGramTexts:
    """How many distinct texts have each of the n-grams of a bucket that may be common."""

    def __init__(self, held: np.ndarray) -> None:
        """Take HELD_RUN of held-out reviews."""
        runs = held["run"]
        ordered = np.sort(runs[~is_whole(runs)])
        step = MIN_HELD - 1
        often = np.unique(ordered[step:][ordered[step:] == ordered[:-step]])
        chosen = np.flatnonzero(np.isin(runs, often))
        order = chosen[np.lexsort((held["text"][chosen], runs[chosen]))]
        order = order[mark_firsts(runs[order], held["text"][order])]
        self._runs, self._held = np.unique(runs[order], return_counts=True)
        self._filter = HashFilter(self._runs)
        self._trained = np.empty(0, np.uint64)
        """The number of an n-gram, shifted, and the hash of a text, each pair once."""

    def add_trained(self, rows: np.ndarray) -> None:
        """Count RUN of reviews that are not held out."""
        if not len(self._runs):
            return
        rows = rows[self._filter.find(rows["run"])]
        places = np.searchsorted(self._runs, rows["run"])
        known = self._runs.take(places, mode="clip") == rows["run"]
        pairs = places[known].astype(np.uint64) << np.uint64(32) | rows["words"][known]
        pairs = np.union1d(self._trained, pairs)
        bounds = find_runs(pairs >> np.uint64(32))
        rank = np.arange(len(pairs)) - np.repeat(bounds[:-1], np.diff(bounds))
        self._trained = pairs[rank < MAX_TEXTS]

    def list_common(self, reviews: int) -> np.ndarray:
        """Return the hashes of the common n-grams of a dump of so many reviews, ascending."""
        trained = (self._trained >> np.uint64(32)).astype(np.int64)
        texts = self._held + np.bincount(trained, minlength=len(self._runs))
        many = min(max(math.ceil(COMMON_SHARE * reviews), MIN_TEXTS), MAX_TEXTS)
        return self._runs[(self._held >= MIN_HELD) & (texts >= many)]


def read_common(paths: Sequence[str]) -> np.ndarray:
    """Return the hashes of the common n-grams of all buckets (`write_common`), ascending."""
    packed = storage.map_paths(storage.read_bytes, paths)
    return np.sort(np.frombuffer(b"".join(packed), HASH))


def count_ngrams(chunks: Iterable[np.ndarray], common: np.ndarray) -> np.ndarray:
    """Return TEXT_NGRAMS by row, of the HELD_RUN of a file and the hashes of common n-grams."""
    keys, counts = [np.empty(0, np.uint32)], [np.empty(0, np.int64)]
    for rows in chunks:
        found, n = np.unique(rows["row"][np.isin(rows["run"], common)], return_counts=True)
        keys.append(found)
        counts.append(n)
    distinct, which = np.unique(np.concatenate(keys), return_inverse=True)
    counted = np.empty(len(distinct), TEXT_NGRAMS)
    counted["row"] = distinct
    counted["runs"] = np.bincount(which, np.concatenate(counts), len(distinct))
    return counted


def write_counts(path: str, folder: str, common: Sequence[str]) -> Iterator[str]:
    """Write TEXT_NGRAMS of a file of HELD_RUN, once; yield its name, if there are any."""
    name = name_file(path)
    written = storage.join_path(folder, f"{name}.counts")
    if not storage.exists(written):
        known = read_common(common)
        size, step = storage.get_size(path) if len(known) else 0, CHUNK_ROWS * HELD_RUN.itemsize
        chunks = (
            np.frombuffer(storage.read_range(path, begin, min(size, begin + step)), HELD_RUN)
            for begin in range(0, size, step)
        )
        storage.write_bytes(written, count_ngrams(chunks, known).tobytes())
    if storage.get_size(written):
        yield name


def name_file(path: str) -> str:
    """Return the name of a file of held-out texts without its ending."""
    return os.path.basename(path).removesuffix(".heldout")


def discount(rows: np.ndarray, packed: bytes, common: np.ndarray) -> np.ndarray:
    """Return HELD_RUN of a file without the `common` n-grams, also in the sizes; of a text of
    little else only its hash as a whole. `packed` are the file's TEXT_NGRAMS.
    """
    counted = np.frombuffer(packed, TEXT_NGRAMS)
    if not len(counted):
        return rows
    rows = rows[~np.isin(rows["run"], common)]
    places = np.searchsorted(counted["row"], rows["row"])
    has_some = counted["row"].take(places, mode="clip") == rows["row"]
    rows["size"][has_some] -= counted["runs"][places[has_some]]
    return rows[~has_some | (rows["size"] >= MIN_OWN) | is_whole(rows["run"])]
