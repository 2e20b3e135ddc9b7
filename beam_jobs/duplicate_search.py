"""The search for duplicates as work: buckets of packed hashes, spread over the workers, each read from all units."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from apache_beam.pvalue import TaggedOutput

from beam_jobs import deduplication, engine, near_duplicates, seen, storage

SEEN = "seen"  # the tag of texts that earlier corpora have
Counts = list[dict[str, Any]]
Loser = tuple[str, bytes]  # name of a unit, packed row numbers
Known = TaggedOutput  # of a Loser


def list_buckets(counts: Counts, seen: int = 0) -> Iterator[tuple[int, int]]:
    """`seen`: texts of earlier corpora."""
    of = deduplication.buckets(sum(c["prepared"] for c in counts) + seen)
    return ((bucket, of) for bucket in range(of))


def list_bands(counts: Counts, threshold: float) -> Iterator[tuple[int, int, int]]:
    return ((band, *b) for band in range(near_duplicates.bands(threshold)[0]) for b in list_buckets(counts))


def names(counts: Counts) -> list[str]:
    return sorted(c["unit"] for c in counts)


def packed_rows(folder: str, unit: str, first: int, last: int) -> np.ndarray:
    """Rows of a unit's packed hashes; no more than these are read, also where the files are far away."""
    size = deduplication.PACKED.itemsize
    with storage.open_bytes(storage.join(folder, f"{unit}.hashes")) as file:
        file.seek(first * size)
        return np.frombuffer(file.read((last - first) * size), dtype=deduplication.PACKED)


def signatures_of(folder: str, unit: str) -> np.ndarray:
    path = storage.join(folder, f"{unit}.bands")
    if not storage.is_remote(path):
        return np.load(path, mmap_mode="r")
    with storage.open_bytes(path) as file:
        return np.load(file)


def exact(bucket: tuple[int, int], folder: str, counts: Counts, packs: Sequence[seen.Pack]) -> Iterator[Loser | Known]:
    """Copies of what stays, and, tagged, texts that earlier corpora have; of the largest units first, for these are
    dealt out to the workers in this order.
    """
    units = sorted(counts, key=lambda c: c["unit"])
    parts = [packed_rows(folder, c["unit"], *deduplication.stretch(c["offsets"], *bucket)) for c in units]
    dumps = [c["dump"] for c in units]
    copies, known = deduplication.losers(names(counts), parts, dumps, seen.texts_in(bucket, packs))
    for unit in (c["unit"] for c in engine.largest_first(counts, lambda c: c["prepared"])):
        if unit in copies:
            yield unit, copies[unit].astype(deduplication.ROW_NUMBER).tobytes()
        if unit in known:
            yield TaggedOutput(SEEN, (unit, known[unit].astype(deduplication.ROW_NUMBER).tobytes()))


def near(part: tuple[int, int, int], folder: str, threshold: float, counts: Counts) -> Iterator[Loser]:
    band, bucket, of = part
    units = names(counts)
    dump_of = {c["unit"]: c["dump"] for c in counts}
    signatures = [signatures_of(folder, unit) for unit in units]
    columns: list[tuple[np.ndarray, ...]] = []
    for i, unit in enumerate(units):
        hashes = near_duplicates.band_hashes(signatures[i], band, threshold)
        here = np.flatnonzero((hashes >> np.uint64(32)) * np.uint64(of) >> np.uint64(32) == np.uint64(bucket))
        packed = packed_rows(folder, unit, 0, len(hashes))
        keys = np.empty(len(packed), np.uint64)
        keys[packed["row"]] = packed["key"]
        dump, number = (np.full(len(here), value, np.uint32) for value in (dump_of[unit], i))
        columns.append((hashes[here], dump, keys[here], number, here.astype(np.uint32)))
    texts = near_duplicates.Texts(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    for i, rows in near_duplicates.losers(texts, signatures, threshold).items():
        yield units[i], rows.astype(deduplication.ROW_NUMBER).tobytes()
