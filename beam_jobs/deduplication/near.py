"""Near-duplicates: MinHash signatures (datasketch) of runs of 3 words, compared where a band of
them is equal.

Of the reviews that share a band the one with the smallest key in the earliest dump leads; the
others whose signatures agree with the leader's in at least the threshold are near copies. Keys are
hashes, so neither the order within a dump nor the number of workers decides. Texts of fewer than 3
words have no near-duplicates.

A near copy of several leaders belongs to that with the smallest hash, which may be a near copy too:
who follows these links comes to the first text of the cluster, which is no near copy and stays. A
link leads to the same dump or an earlier one, and a cluster's size counts the reviews of one dump,
exact copies among them: a later dump changes nothing of an earlier one.

The first pass over a unit leaves, bucket by bucket (buckets.py), a row of 28 bytes for each band of
each review, and the signatures, of which the search reads those that share a band with another
text's: rows of one text are near copies without a look.

The reviews that earlier corpora kept (`--seen`) lead wherever they share a band. Their signatures
are computed again from their sentences, which costs as much as those of the dump's own reviews.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_jobs.core import storage
from beam_jobs.deduplication import buckets
from beam_jobs.deduplication.buckets import BucketedFiles, Part
from beam_jobs.deduplication.exact import (
    BUCKET_ROWS,
    PACKED_ROW,
    ROW_NUMBER,
    Duplicates,
    pack_rows,
    read_first_halves,
)
from beam_jobs.deduplication.held_out import BucketedRows, join_sentences
from beam_jobs.reading.work_units import PreparedUnit
from beam_jobs.text.word_runs import BATCH_TEXTS, split_words

if TYPE_CHECKING:
    from datasketch import MinHash

RUN_WORDS = 3
PERMUTATIONS = 128
MAX_BAND_THRESHOLD = 0.98
"""The highest threshold that bands are made for: above they find as much."""
MIN_RECALL = 0.95
"""Of the pairs whose signatures agree in the threshold, so many share a band: of a threshold of 0.8
18 bands of 7 values find 98%."""
NO_RUNS = np.uint32(0xFFFFFFFF)
"""Stands first in the signature of a text without runs."""
BAND = np.dtype([("run", "<u8"), ("text", "<u8"), ("key", "<u8"), ("row", "<u4")])
"""A hash of a band and its number, the first half of the hash of the text, the key that orders
copies (exact.py), and the number of the review in its unit."""
LINK = np.dtype([("text", "<u8"), ("parent", "<u8"), ("dump", "<i4"), ("reviews", "<u4")])
"""A text that nearly repeats another one, which comes first, both by the first half of their
hashes; the first dump that has it, and how many reviews there have it."""
CLUSTER = np.dtype([("text", "<u8"), ("root", "<u8"), ("size", "<u4")])
"""A text, the first one of its cluster, and how many reviews of the text's dump are in it."""
MEMBER = np.dtype([("row", "<u4"), ("size", "<u4"), ("cluster", "<u8"), ("is_copy", "?")])
"""A review of a unit, how many are in its cluster, the first text of that, and whether that is
another text than its own."""
SIGNATURE = 4 * PERMUTATIONS
"""Bytes of one."""
NO_PARENT = np.uint64(0xFFFFFFFFFFFFFFFF)
EARLIER_DUMP = -1
"""Number of the dumps of earlier corpora."""
PAIRS = 1 << 16
"""Pairs of texts whose signatures are compared at once, 128 MiB at most."""
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
        starts = np.flatnonzero(np.diff(owners, prepend=-1)).tolist()
        hashes = (runs >> np.uint64(32)).tolist()
        for start, stop in pairwise([*starts, len(hashes)]):
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
    parts: Sequence[np.ndarray], dumps: Sequence[int], read: ReadSignatures, threshold: float
) -> np.ndarray:
    """Return LINK of the texts that nearly repeat the leader of a band, and of these leaders;
    `parts` are BAND of one bucket by unit, `dumps` the number of the dump of each. Texts that a
    review of EARLIER_DUMP has are not returned.
    """
    rows = np.concatenate([np.empty(0, BAND), *parts])
    units = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    of_dump = np.array(dumps, np.int64)[units]
    order = np.lexsort((rows["row"], units, rows["key"], of_dump, rows["run"]))
    rows, units, of_dump = rows[order], units[order], of_dump[order]
    firsts, reviews = find_first_reviews(rows, of_dump)
    is_leader = np.diff(rows["run"][firsts], prepend=~rows["run"][:1]) != 0
    is_new = of_dump[firsts] != EARLIER_DUMP
    others = np.flatnonzero(~is_leader & is_new)
    leaders = np.flatnonzero(is_leader)[np.cumsum(is_leader)[others] - 1]
    agree = np.zeros(len(others), bool)
    for first in range(0, len(others), PAIRS):
        pairs = slice(first, first + PAIRS)
        places = firsts[np.concatenate([others[pairs], leaders[pairs]])]
        numbers = units[places] << 32 | rows["row"][places]
        distinct, which = np.unique(numbers, return_inverse=True)
        signatures = read(distinct >> 32, distinct & 0xFFFFFFFF)
        one, other = signatures[which].reshape(2, len(places) // 2, -1)
        agree[pairs] = (one == other).mean(axis=1) >= threshold
    others, leaders = others[agree], leaders[agree]
    own = np.unique(leaders[is_new[leaders]])
    texts, parents = np.concatenate([others, own]), np.concatenate([leaders, own])
    links = np.empty(len(texts), LINK)
    links["text"], links["parent"] = (rows["text"][firsts[of]] for of in (texts, parents))
    links["dump"], links["reviews"] = of_dump[firsts[texts]], reviews[texts]
    return links


def find_first_reviews(rows: np.ndarray, of_dump: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the first review of each text of each band, ascending, and how many
    reviews of its dump have the text. `rows` are BAND by band, dump and key.
    """
    by_text = np.lexsort((rows["text"], rows["run"]))
    runs, texts = (rows[name][by_text] for name in ("run", "text"))
    is_first = np.diff(runs, prepend=~runs[:1]) != 0
    is_first |= np.diff(texts, prepend=~texts[:1]) != 0
    firsts, which = by_text[is_first], np.cumsum(is_first) - 1
    is_own = of_dump[by_text] == of_dump[firsts][which]
    reviews = np.bincount(which[is_own], minlength=len(firsts))
    order = np.argsort(firsts)
    return firsts[order], reviews[order]


@dataclass(frozen=True)
class EarlierBands:
    """BAND of the reviews of earlier corpora, and beside each file their signatures, and LINK of
    those that are not the first of their cluster.
    """

    files: BucketedFiles = field(default_factory=BucketedFiles)

    def list_beside(self, kind: str) -> list[str]:
        """Return the files beside those of the bands: signatures, or links."""
        return [path.removesuffix("bands") + kind for path in self.files.paths]


NO_EARLIER = EarlierBands()


def write_earlier_bands(run: tuple[int, tuple[str, ...]], folder: str, threshold: float) -> str:
    """Write what is compared of the reviews of some files of an earlier corpus, once; return the
    path of the bands. Where each bucket begins is in a file with .starts behind it.
    """
    number, paths = run
    name = storage.join_path(folder, f"{number:05d}")
    marker = f"{name}.bands.starts"
    if not storage.exists(marker):
        bands, first, links = BucketedRows(BAND), 0, [np.empty(0, LINK)]
        with storage.atomic_path(f"{name}.signatures") as path, open(path, "wb") as file:
            for batch in read_earlier_batches(paths):
                ids, hashes = (b"".join(batch[n].to_pylist()) for n in ("review_id", "text_hash"))
                keys = read_first_halves(ids)
                signatures = compute_signatures(join_sentences(batch))
                file.write(signatures.tobytes())
                for rows in list_band_rows(signatures, pack_rows(hashes, keys), threshold):
                    rows["row"] += np.uint32(first)
                    bands.add_rows(rows)
                first += batch.num_rows
                known = np.empty(batch.num_rows, LINK)
                known["text"] = read_first_halves(hashes)
                known["parent"] = batch["near_cluster"].to_numpy()
                known["dump"], known["reviews"] = EARLIER_DUMP, 0
                links.append(known[known["text"] != known["parent"]])
        storage.write_bytes(f"{name}.links", np.concatenate(links).tobytes())
        storage.write_bytes(marker, bands.save(f"{name}.bands").tobytes())
    return f"{name}.bands"


def read_earlier_batches(paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the reviews of corpus files, BATCH_TEXTS at a time."""
    columns = ["review_id", "text_hash", "has_title", "sentences", "near_cluster"]
    for path in paths:
        with storage.open_bytes(path) as file:
            yield from pq.ParquetFile(file).iter_batches(BATCH_TEXTS, columns=columns)


def join_earlier_bands(paths: Sequence[str], folder: str) -> EarlierBands:
    """Join the starts of what `write_earlier_bands` wrote; return all of it."""
    ordered, joined = tuple(sorted(paths)), storage.join_path(folder, "bands.starts")
    buckets.join_starts([f"{path}.starts" for path in ordered], joined)
    return EarlierBands(BucketedFiles(ordered, joined))


def list_parts(counts: list[PreparedUnit], threshold: float, earlier: int = 0) -> Iterator[Part]:
    """Yield the parts of the buckets of all bands; `earlier` counts earlier corpora's reviews."""
    reviews, (bands, _) = earlier + sum(c.prepared for c in counts), choose_bands(threshold)
    return buckets.list_parts(buckets.count_buckets(bands * reviews, BUCKET_ROWS, reviews))


def write_links(
    part: Part,
    prepared: str,
    folder: str,
    threshold: float,
    units: list[PreparedUnit],
    earlier: EarlierBands = NO_EARLIER,
) -> str:
    """Write LINK of the near copies that a part of the buckets shows, once; return the path.

    They are found in the `.bands` and `.signatures` of all prepared units, which come in their
    order (`buckets.join_unit_starts`).
    """
    path = storage.join_path(folder, f"{part[0]:03d}.links")
    if storage.exists(path):
        return path
    dumps = [*(unit.dump for unit in units), *(EARLIER_DUMP for _ in earlier.files.paths)]
    paths = [storage.join_path(prepared, f"{unit.unit}.signatures") for unit in units]
    paths += earlier.list_beside("signatures")

    def read(numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return read_signatures(paths, numbers, rows)

    links = np.empty(0, LINK)
    files = buckets.list_unit_files(prepared, units, "bands")
    with (
        buckets.open_part(part, files, BAND) as bands,
        buckets.open_part(part, earlier.files, BAND) as earlier_bands,
    ):
        for bucket in buckets.list_buckets_of(part):
            parts = [*bands(bucket), *earlier_bands(bucket)]
            found = find_near_copies(parts, dumps, read, threshold)
            links = choose_parents(np.concatenate([links, found]))
    storage.write_bytes(path, links.tobytes())
    return path


def choose_parents(links: np.ndarray) -> np.ndarray:
    """Return one LINK of each text, sorted by it: to the parent with the smallest hash, and to
    itself only if it has no other.
    """
    links = links.take(np.argsort(np.ascontiguousarray(links["text"]), kind="stable"))
    texts, parents = (np.ascontiguousarray(links[name]) for name in ("text", "parent"))
    firsts = np.flatnonzero(np.diff(texts, prepend=~texts[:1]))
    chosen = links.take(firsts)
    if len(firsts):
        parents[parents == texts] = NO_PARENT
        least = np.minimum.reduceat(parents, firsts)
        chosen["parent"] = np.where(least == NO_PARENT, chosen["text"], least)
    return chosen


def join_links(
    paths: Sequence[str], folder: str, earlier: EarlierBands = NO_EARLIER
) -> BucketedFiles:
    """Follow the links of all parts to the clusters' first texts; return CLUSTER of all texts that
    have a link, in one file. One worker holds them all: measured with 5 million such texts in 20
    million links, 0.6 GB and 18 seconds.
    """
    path, joined = (storage.join_path(folder, f"{name}.starts") for name in ("one", "clusters"))
    output = storage.join_path(folder, "all.clusters")
    found = [np.empty(0, LINK)]
    for packed in map(storage.read_bytes, [*sorted(paths), *earlier.list_beside("links")]):
        found.append(np.frombuffer(packed, LINK))
        if sum(map(len, found[1:])) > len(found[0]):  # so that few rows are sorted often
            found = [choose_parents(np.concatenate(found))]
    links = choose_parents(np.concatenate(found))
    del found
    texts, parents = (np.ascontiguousarray(links[name]) for name in ("text", "parent"))
    tops = np.minimum(np.searchsorted(texts, parents), max(0, len(texts) - 1))
    is_last = texts[tops] != parents  # it is of an earlier corpus, or has no near copy there
    tops[is_last] = np.flatnonzero(is_last)
    while not np.array_equal(tops, further := tops[tops]):
        tops = further
    roots = parents[tops]
    by_root = np.lexsort((links["dump"], roots))
    is_first = np.diff(roots[by_root], prepend=~roots[by_root[:1]]) != 0
    is_first |= np.diff(links["dump"][by_root], prepend=EARLIER_DUMP) != 0
    which = np.cumsum(is_first) - 1
    sizes = np.bincount(which, links["reviews"][by_root])
    clusters = np.empty(len(texts), CLUSTER)
    clusters["text"], clusters["root"] = texts, roots
    clusters["size"][by_root] = sizes[which]
    storage.write_bytes(output, clusters.tobytes())
    storage.write_bytes(path, buckets.find_starts(texts).tobytes())
    buckets.join_starts([path], joined)
    return BucketedFiles((output,), joined)


def find_members(
    part: Part, folder: str, units: list[PreparedUnit], clusters: BucketedFiles
) -> Iterator[Duplicates]:
    """Yield by unit MEMBER of the reviews that are not alone in their cluster, from the `.hashes`
    of all units in a folder; of a text only those of its first dump.
    """
    names, dumps = [unit.unit for unit in units], np.array([unit.dump for unit in units])
    members: dict[str, list[bytes]] = defaultdict(list)
    files = buckets.list_unit_files(folder, units, "hashes")
    with (
        buckets.open_part(part, files, PACKED_ROW) as read_hashes,
        buckets.open_part(part, clusters, CLUSTER) as read_clusters,
    ):
        for bucket in buckets.list_buckets_of(part):
            parts, (known,) = list(read_hashes(bucket)), read_clusters(bucket)
            unit = np.repeat(np.arange(len(units)), [len(rows) for rows in parts])
            rows = np.concatenate([np.empty(0, PACKED_ROW), *parts])
            order = np.lexsort((dumps[unit], rows["high"].astype(np.uint64)))
            rows, unit = rows[order], unit[order]
            texts, of_dump = rows["high"].astype(np.uint64), dumps[unit]
            is_first = np.diff(texts, prepend=~texts[:1]) != 0
            which = np.cumsum(is_first) - 1
            is_own = of_dump == of_dump[is_first][which]
            found = np.empty(len(rows), MEMBER)
            found["row"], found["cluster"] = rows["row"], texts
            found["size"] = np.bincount(which[is_own], minlength=len(rows))[which]
            if len(known):
                places = np.minimum(np.searchsorted(known["text"], texts), len(known) - 1)
                is_known = known["text"][places] == texts
                found["cluster"][is_known] = known["root"][places[is_known]]
                found["size"][is_known] = known["size"][places[is_known]]
            found["is_copy"] = found["cluster"] != texts
            told = np.flatnonzero(is_own & (found["is_copy"] | (found["size"] > 1)))
            told = told[np.argsort(unit[told], kind="stable")]
            starts = np.flatnonzero(np.diff(unit[told], prepend=~unit[told[:1]])).tolist()
            for first, last in pairwise([*starts, len(told)]):
                members[names[unit[told[first]]]].append(found[told[first:last]].tobytes())
    for name, packed in sorted(members.items()):
        yield name, b"".join(packed)


def unpack_members(packed: Iterable[bytes]) -> np.ndarray:
    """Return the MEMBER of a unit by row."""
    members = np.frombuffer(b"".join(packed), MEMBER)
    return members[np.argsort(members["row"])]


def list_copies(members: Duplicates) -> Duplicates:
    """Return the row numbers of the MEMBER of a unit that are not the first of their cluster."""
    unit, packed = members
    found = unpack_members([packed])
    return unit, found["row"][found["is_copy"]].astype(ROW_NUMBER).tobytes()


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
    is_first = (np.diff(numbers, prepend=-1) != 0) | (np.diff(rows, prepend=-2) != 1)
    firsts = np.flatnonzero(is_first)
    stretches = (
        (paths[numbers[first]], int(rows[first]) * SIGNATURE, int(rows[last - 1] + 1) * SIGNATURE)
        for first, last in pairwise([*firsts.tolist(), len(rows)])
    )
    read = b"".join(storage.read_each(stretches))
    return np.frombuffer(read, np.uint32).reshape(-1, PERMUTATIONS)
