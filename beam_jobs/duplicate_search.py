"""The search for duplicates as work: buckets of packed hashes, spread over the workers, each read from all units."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from beam_jobs import deduplication, near_duplicates, storage

Counts = list[dict[str, Any]]
Loser = tuple[str, bytes]  # name of a unit, packed row numbers


def list_buckets(counts: Counts) -> Iterator[tuple[int, int]]:
    of = deduplication.buckets(sum(c["prepared"] for c in counts))
    return ((bucket, of) for bucket in range(of))


def list_bands(counts: Counts, threshold: float) -> Iterator[tuple[int, int, int]]:
    return ((band, *b) for band in range(near_duplicates.bands(threshold)[0]) for b in list_buckets(counts))


def names(counts: Counts) -> list[str]:
    return sorted(c["unit"] for c in counts)


def load(folder: str, name: str) -> np.ndarray:
    path = storage.join(folder, name)
    if not storage.is_remote(path):
        return np.load(path, mmap_mode="r")
    with storage.open_bytes(path) as file:
        return np.load(file)


def exact(bucket: tuple[int, int], folder: str, counts: Counts) -> Iterator[Loser]:
    units = names(counts)
    parts = [np.array(deduplication.stretch(load(folder, f"{unit}.npy"), *bucket)) for unit in units]
    for unit, rows in deduplication.losers(units, parts).items():
        yield unit, rows.astype(deduplication.ROW_NUMBER).tobytes()


def near(part: tuple[int, int, int], folder: str, threshold: float, counts: Counts) -> Iterator[Loser]:
    band, bucket, of = part
    units = names(counts)
    signatures = [load(folder, f"{unit}.bands") for unit in units]
    columns: list[tuple[np.ndarray, ...]] = []
    for i, unit in enumerate(units):
        hashes = near_duplicates.band_hashes(signatures[i], band, threshold)
        here = np.flatnonzero((hashes >> np.uint64(32)) * np.uint64(of) >> np.uint64(32) == np.uint64(bucket))
        packed = load(folder, f"{unit}.npy")
        keys = np.empty(len(packed), np.uint64)
        keys[packed["row"]] = packed["key"]
        columns.append((hashes[here], keys[here], np.full(len(here), i, np.uint32), here.astype(np.uint32)))
    texts = near_duplicates.Texts(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    for i, rows in near_duplicates.losers(texts, signatures, threshold).items():
        yield units[i], rows.astype(deduplication.ROW_NUMBER).tobytes()
