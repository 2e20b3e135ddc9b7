"""The search for duplicates in parallel: buckets of packed hashes, each read from all units.

That for near-duplicates (`--near_duplicates`, off by default) reads the signatures of all units
for each bucket of a band, 512 bytes a review: local ones are mapped, those of a store a worker
holds. So from and to a store it is for a million reviews or so.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from apache_beam.pvalue import TaggedOutput

from beam_jobs.deduplication import (
    buckets,
    earlier_corpora,
    exact_duplicates,
    near_duplicates,
)
from beam_jobs.deduplication.buckets import Part, count_buckets
from beam_jobs.engine.run import sort_largest_first
from beam_jobs.job import storage

SEEN = "seen"
"""The tag of texts that earlier corpora have."""
Counts = list[dict[str, Any]]
Duplicates = tuple[str, bytes]
"""The name of a unit and packed row numbers."""
SeenTexts = TaggedOutput
"""Duplicates under the tag SEEN."""


def list_parts(counts: Counts, seen: int = 0) -> Iterator[Part]:
    """Yield the parts of the buckets; `seen` counts the texts of earlier corpora."""
    reviews = sum(c["prepared"] for c in counts) + seen
    return buckets.list_parts(count_buckets(reviews, exact_duplicates.BUCKET_ROWS, reviews))


def list_bands(counts: Counts, threshold: float) -> Iterator[tuple[int, int, int]]:
    of = count_buckets(sum(c["prepared"] for c in counts), exact_duplicates.BUCKET_ROWS)
    return (
        (band, bucket, of)
        for band in range(near_duplicates.choose_bands(threshold)[0])
        for bucket in range(of)
    )


def list_unit_names(counts: Counts) -> list[str]:
    return sorted(c["unit"] for c in counts)


def read_packed_rows(folder: str, unit: str, first: int, last: int) -> np.ndarray:
    """Return rows of a unit's packed hashes; no more than these are read, also from afar."""
    size = exact_duplicates.PACKED_ROW.itemsize
    path = storage.join_path(folder, f"{unit}.hashes")
    return np.frombuffer(
        storage.read_range(path, first * size, last * size), exact_duplicates.PACKED_ROW
    )


def load_signatures(folder: str, unit: str) -> np.ndarray:
    path = storage.join_path(folder, f"{unit}.bands")
    if not storage.is_remote(path):
        return np.load(path, mmap_mode="r")
    with storage.open_bytes(path) as file:
        return np.load(file)


def find_exact_duplicates(
    part: Part,
    folder: str,
    counts: Counts,
    packs: Sequence[earlier_corpora.SortedHashes],
) -> Iterator[Duplicates | SeenTexts]:
    """Yield copies of what stays and, tagged, texts that earlier corpora have.

    Those of the largest units come first: the runner deals them out to its workers in this order.
    """
    units = sorted(counts, key=lambda c: c["unit"])
    files = [(storage.join_path(folder, f"{c['unit']}.hashes"), c["hashes"]) for c in units]
    dumps = [c["dump"] for c in units]
    copies: dict[str, list[bytes]] = defaultdict(list)
    known: dict[str, list[bytes]] = defaultdict(list)
    with buckets.open_part(part, files, exact_duplicates.PACKED_ROW) as read_hashes:
        for bucket in buckets.list_buckets_of(part):
            found = exact_duplicates.find_duplicates(
                list_unit_names(counts),
                list(read_hashes(bucket)),
                dumps,
                earlier_corpora.read_bucket(bucket, packs),
            )
            for rows_by_unit, kind in zip(found, (copies, known), strict=True):
                for unit, rows in rows_by_unit.items():
                    kind[unit].append(rows.astype(exact_duplicates.ROW_NUMBER).tobytes())
    for unit in (c["unit"] for c in sort_largest_first(counts, lambda c: c["prepared"])):
        if unit in copies:
            yield unit, b"".join(copies[unit])
        if unit in known:
            yield TaggedOutput(SEEN, (unit, b"".join(known[unit])))


def find_near_duplicates(
    part: tuple[int, int, int], folder: str, threshold: float, counts: Counts
) -> Iterator[Duplicates]:
    band, bucket, of = part
    units = list_unit_names(counts)
    dump_of = {c["unit"]: c["dump"] for c in counts}
    signatures = [load_signatures(folder, unit) for unit in units]
    columns: list[tuple[np.ndarray, ...]] = []
    for i, unit in enumerate(units):
        hashes = near_duplicates.hash_band(signatures[i], band, threshold)
        here = np.flatnonzero(
            (hashes >> np.uint64(32)) * np.uint64(of) >> np.uint64(32) == np.uint64(bucket)
        )
        packed = read_packed_rows(folder, unit, 0, len(hashes))
        keys = np.empty(len(packed), np.uint64)
        keys[packed["row"]] = packed["key"]
        dump, number = (np.full(len(here), value, np.uint32) for value in (dump_of[unit], i))
        columns.append((hashes[here], dump, keys[here], number, here.astype(np.uint32)))
    texts = near_duplicates.BandRows(
        *(np.concatenate(column) for column in zip(*columns, strict=True))
    )
    for i, rows in near_duplicates.find_near_copies(texts, signatures, threshold).items():
        yield units[i], rows.astype(exact_duplicates.ROW_NUMBER).tobytes()
