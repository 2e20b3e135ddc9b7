"""Near-duplicates: MinHash signatures (datasketch) of runs of 3 words, compared where a band of
them is equal.

Of the reviews that share a band the one with the smallest key leads; the others whose signatures
agree with the leader's in at least the threshold are near copies. Keys are hashes, so neither the
order within a dump nor the number of workers decides. Texts of fewer than 3
words have no near-duplicates. A leader need not stay itself: of a chain of texts, each near the
next, the first stays.

The first pass over a unit leaves, bucket by bucket (buckets.py), a row of 28 bytes for each band of
each review, and the signatures, of which the search reads those that share a band with another
text's: rows of one text are near copies without a look.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.deduplication import buckets
from amazon_electra.beam_jobs.deduplication.buckets import Part
from amazon_electra.beam_jobs.deduplication.exact import (
    BUCKET_ROWS,
    ROW_NUMBER,
    UnitRows,
    group_by_unit,
)
from amazon_electra.beam_jobs.reading.work_units import UnitSize
from amazon_electra.beam_jobs.text.spans import find_runs, mark_firsts
from amazon_electra.beam_jobs.text.word_runs import BATCH_TEXTS, split_words

if TYPE_CHECKING:
    from datasketch import MinHash

RUN_WORDS = 3
PERMUTATIONS = 128
MAX_BAND_THRESHOLD = 0.98  # the highest threshold that bands are made for: above they find as much
MIN_RECALL = 0.95
"""Of the pairs whose signatures agree in the threshold, so many share a band: of a threshold of 0.8
18 bands of 7 values find 98%."""
NO_RUNS = np.uint32(0xFFFFFFFF)  # stands first in the signature of a text without runs
BAND = np.dtype([("run", "<u8"), ("text", "<u8"), ("key", "<u8"), ("row", "<u4")])
"""A hash of a band and its number, the first half of the hash of the text, the key that orders
copies (exact.py), and the number of the review in its unit."""
SIGNATURE = 4 * PERMUTATIONS  # bytes of one
PAIRS = 1 << 16  # pairs of texts whose signatures are compared at once, 128 MiB at most
ReadSignatures = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Returns the signatures, uint32 [texts, PERMUTATIONS], of rows by the indices of their units, both
ascending."""


@lru_cache(1)
def make_empty_minhash() -> "MinHash":
    """Return what the signature of each text is computed in."""
    from datasketch import MinHash  # with scipy: half a second

    return MinHash(num_perm=PERMUTATIONS, seed=1, hashfunc=int, scheme="affine32")


def compute_signatures(texts: list[str]) -> np.ndarray:
    """Return MinHash signatures, uint32 [texts, PERMUTATIONS]."""
    rows = np.full((len(texts), PERMUTATIONS), NO_RUNS, dtype=np.uint32)
    for first in range(0, len(texts), BATCH_TEXTS):
        runs, owners = split_words(texts[first : first + BATCH_TEXTS]).hash_runs(RUN_WORDS)
        hashes = (runs >> np.uint64(32)).tolist()
        for start, stop in pairwise(find_runs(owners).tolist()):
            signature = make_empty_minhash().copy()
            signature.update_batch(hashes[start:stop])
            rows[first + owners[start]] = signature.hashvalues
    return rows


@lru_cache(4)
def choose_bands(threshold: float) -> tuple[int, int]:
    """Return how many bands of how many values: the widest of which MIN_RECALL of the pairs at the
    threshold share one. What shares one is compared, so that narrow bands find nothing wrong.
    """
    agree = min(threshold, MAX_BAND_THRESHOLD)
    widths = range(1, PERMUTATIONS + 1)
    found = [w for w in widths if 1 - (1 - agree**w) ** (PERMUTATIONS // w) >= MIN_RECALL]
    width = max(found, default=1)
    return PERMUTATIONS // width, width


def hash_band(signature_rows: np.ndarray, band: int, threshold: float) -> np.ndarray:
    """Return a uint64 hash of one band of each signature; 0 for a text without runs."""
    _, width = choose_bands(threshold)
    part = np.ascontiguousarray(signature_rows[:, band * width : (band + 1) * width])
    mixed = np.full(len(part), band + 1, dtype=np.uint64)
    for column in part.T:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(31)
    return np.where(signature_rows[:, 0] == NO_RUNS, np.uint64(0), mixed)


def list_band_rows(
    signatures: np.ndarray, packed: np.ndarray, threshold: float
) -> Iterator[np.ndarray]:
    """Yield BAND of each band of a unit's reviews, which `exact.pack_rows` has packed."""
    texts, keys = (np.empty(len(packed), np.uint64) for _ in range(2))
    texts[packed["row"]], keys[packed["row"]] = packed["high"], packed["key"]
    for band in range(choose_bands(threshold)[0]):
        hashes = hash_band(signatures, band, threshold)
        here = np.flatnonzero(hashes)
        rows = np.empty(len(here), BAND)
        rows["run"], rows["text"], rows["key"] = hashes[here], texts[here], keys[here]
        rows["row"] = here
        yield rows


def find_near_copies(
    parts: Sequence[np.ndarray], read: ReadSignatures, threshold: float
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the row numbers of reviews that nearly repeat the leader of a band, by the number of
    their unit. `parts` are BAND of one bucket by unit.
    """
    rows = np.concatenate([np.empty(0, BAND), *parts])
    units = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.lexsort((rows["row"], units, rows["key"], rows["run"]))
    rows, units = rows[order], units[order]
    firsts, texts = number_texts(rows)
    is_leader = mark_firsts(rows["run"][firsts])
    others = np.flatnonzero(~is_leader)
    leaders = np.flatnonzero(is_leader)[np.cumsum(is_leader)[others] - 1]
    is_copy = np.zeros(len(firsts), bool)
    for first in range(0, len(others), PAIRS):
        pairs = slice(first, first + PAIRS)
        places = firsts[np.concatenate([others[pairs], leaders[pairs]])]
        numbers = units[places] << 32 | rows["row"][places]
        distinct, which = np.unique(numbers, return_inverse=True)
        signatures = read(distinct >> 32, distinct & 0xFFFFFFFF)
        one, other = signatures[which].reshape(2, len(places) // 2, -1)
        is_copy[others[pairs]] = (one == other).mean(axis=1) >= threshold
    chosen = is_copy[texts]
    return group_by_unit(units[chosen], rows["row"][chosen].astype(ROW_NUMBER))


def number_texts(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of the first row of each text of each band, ascending, and the number of the
    text of each row. `rows` are BAND sorted by band.
    """
    by_text = np.lexsort((rows["text"], rows["run"]))
    is_first = mark_firsts(*(rows[name][by_text] for name in ("run", "text")))
    firsts, numbers = np.unique(by_text[is_first], return_inverse=True)
    texts = np.empty(len(rows), np.int64)
    texts[by_text] = numbers[np.cumsum(is_first) - 1]
    return firsts, texts


def list_parts(counts: list[UnitSize], threshold: float) -> Iterator[Part]:
    """Yield the parts of the buckets of all bands."""
    reviews, (bands, _) = sum(unit.prepared for unit in counts), choose_bands(threshold)
    return buckets.list_parts(buckets.count_buckets(bands * reviews, BUCKET_ROWS, reviews))


def find_in_part(
    part: Part, prepared: str, threshold: float, units: list[UnitSize]
) -> Iterator[UnitRows]:
    """Yield by unit ROW_NUMBER of the near copies that a part of the buckets shows, from the
    `.bands` and `.signatures` of all prepared units, which come in their order
    (`buckets.join_unit_starts`).
    """
    paths = [storage.join_path(prepared, f"{unit.unit}.signatures") for unit in units]

    def read(numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return read_signatures(paths, numbers, rows)

    copies = [np.empty(0, ROW_NUMBER) for _ in units]
    files = buckets.list_unit_files(prepared, units, "bands")
    with buckets.open_part(part, files, BAND) as read_bands:
        for bucket in buckets.list_buckets_of(part):
            for number, rows in find_near_copies(list(read_bands(bucket)), read, threshold):
                copies[number] = np.union1d(copies[number], rows)
    for unit, rows in zip(units, copies, strict=True):
        if len(rows):
            yield unit.unit, rows.tobytes()


def write_copies(copies: tuple[str, Iterable[bytes]], folder: str) -> str:
    """Write ROW_NUMBER of the near copies of a unit; return its name."""
    unit, packed = copies
    storage.write_bytes(storage.join_path(folder, f"{unit}.copies"), b"".join(packed))
    return unit


def read_signatures(paths: Sequence[str], numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the signatures of rows of these files; both ascend. Of a store no others are read."""
    if not any(map(storage.is_remote, paths)):
        found = [
            np.memmap(paths[number], np.uint32, "r").reshape(-1, PERMUTATIONS)[
                rows[numbers == number]
            ]
            for number in np.unique(numbers).tolist()
        ]
        return np.concatenate(found)
    stretches = (
        (paths[numbers[first]], int(rows[first]) * SIGNATURE, int(rows[last - 1] + 1) * SIGNATURE)
        for first, last in pairwise(find_runs(numbers, rows - np.arange(len(rows))).tolist())
    )
    read = b"".join(storage.read_each(stretches))
    return np.frombuffer(read, np.uint32).reshape(-1, PERMUTATIONS)
