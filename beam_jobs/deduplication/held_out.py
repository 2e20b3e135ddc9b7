"""Finds the reviews that repeat a held-out text, or nearly so, so that none is trained on: a dev or
test review of the dump or of another corpus, or a text of an evaluation file.

Two texts nearly repeat each other if the shorter one has half of its runs of 8 words in the other,
but for those that many texts share (common_ngrams.py). Shorter texts are withheld only if the words
are equal: "i love it" is in half of all reviews. Bucket by bucket (buckets.py) there are:

UNIT.runs            RUN of the reviews that may be trained on, by row number
UNIT.heldout         HELD_RUN of the dev and test reviews, each run once a review
00000.heldout        those of the dev and test reviews of another corpus
withheld.heldout     those of evaluation files

No worker holds more than a bucket or the matches of a unit.
"""

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.limits import COMMON_TEXTS, Limits
from amazon_electra.beam_jobs.deduplication import buckets, common_ngrams
from amazon_electra.beam_jobs.deduplication.buckets import (
    BucketedFiles,
    BucketedRows,
    BucketReader,
    Part,
)
from amazon_electra.beam_jobs.deduplication.common_ngrams import WHOLE, HashFilter, NGramTexts
from amazon_electra.beam_jobs.deduplication.evaluation_texts import (
    MIN_WORDS,
    list_forms,
    read_evaluation_texts,
)
from amazon_electra.beam_jobs.deduplication.exact import ROW_NUMBER
from amazon_electra.beam_jobs.reading.work_units import UnitSize
from amazon_electra.beam_jobs.text.spans import drop_repeats, expand_spans, find_runs, mark_firsts
from amazon_electra.beam_jobs.text.word_runs import BATCH_TEXTS, Words, split_words

RUN_WORDS = 8
MIN_OVERLAP = 0.5
MATCHES = 1 << 18  # pairs of a run and a held-out text that has it, which are counted at once
RUN = np.dtype([("run", "<u8"), ("text", "<u4"), ("words", "<u4")])
"""The hash of a run, the number of a text that has it, and half of the hash of its words."""
LookUp = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Returns of distinct runs, ascending, how many held-out texts have each, and the texts of all."""
HELD_OUT_SPLITS = ("dev", "test")  # the splits that models are chosen and judged by
HELD_RUN = np.dtype([("run", "<u8"), ("text", "<u8"), ("row", "<u4"), ("size", "<u4")])
"""A hash, the hash of the words of a text that has it, that review's number, its distinct runs."""
MATCH = np.dtype([("text", "<u8"), ("row", "<u4"), ("size", "<u4"), ("shared", "<u4")])
"""A held-out text (hash of its words), a review's row, the runs of the text, and those of both in a
bucket; for COMMON how many common runs the review has.
"""
COMMON = np.uint64(0xFFFFFFFFFFFFFFFF)
EQUAL = 1 << 30  # runs that texts of equal words count as sharing: more than any text has
UNIT_MATCH = np.dtype([("unit", "<u8"), ("match", MATCH)])
"""A match, and the number of its unit, shifted so that its first bits decide the bucket."""
EVALUATION = "withheld"  # name of the file of the texts of evaluation files
BUCKET_RUNS = 1 << 22  # held-out runs of a bucket at most, 96 MiB
CHUNK_TEXTS = 4096  # evaluation texts whose forms are held at once


def hash_runs(
    texts: list[str], is_held_out: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return RUN of the texts that are not held out and HELD_RUN of those that are, by index, and
    how many runs each has, uint32 [texts].
    """
    all_runs, all_owners = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]
    hashes, sizes = np.zeros(len(texts), np.uint64), np.zeros(len(texts), np.uint32)
    for start in range(0, len(texts), BATCH_TEXTS):
        words, batch = split_words(texts[start : start + BATCH_TEXTS]), slice(start, None)
        hashes[batch][: words.texts] = words.hash_texts()
        runs, owners, sizes[batch][: words.texts] = list_ngrams(words)
        all_runs.append(runs)
        all_owners.append(owners + np.uint32(start))
    runs, owners = np.concatenate(all_runs), np.concatenate(all_owners)
    is_held = is_held_out[owners]
    trained = np.empty(len(runs) - int(is_held.sum()), RUN)
    trained["run"], trained["text"] = runs[~is_held], owners[~is_held]
    trained["words"] = hashes[trained["text"]] >> np.uint64(32)
    distinct, held_owners = drop_repeated_runs(runs[is_held], owners[is_held])
    held = np.empty(len(distinct), HELD_RUN)
    held["run"], held["text"], held["row"] = distinct, hashes[held_owners], held_owners
    of_words = held_owners[~common_ngrams.is_whole(distinct)]
    held["size"] = np.bincount(of_words, minlength=len(texts))[held_owners]
    return trained, held, sizes


class NGramHasher:
    """Hashes the runs of reviews in the order of their numbers."""

    def __init__(self) -> None:
        self.trained, self.held_out = BucketedRows(RUN), BucketedRows(HELD_RUN)
        self.texts = 0

    def add_texts(self, texts: list[str], is_held_out: np.ndarray) -> np.ndarray:
        """Add the runs of the next reviews; return how many of 8 words each has, uint32 [texts]."""
        trained, held, sizes = hash_runs(texts, is_held_out)
        trained["text"] += np.uint32(self.texts)
        held["row"] += np.uint32(self.texts)
        self.trained.add_rows(trained)
        self.held_out.add_rows(held)
        self.texts += len(texts)
        return sizes


def write_corpus_runs(run: tuple[int, tuple[str, ...]], folder: str) -> str:
    """Write the runs of the dev and test reviews of some corpus files, once; return the path."""
    number, paths = run
    path = storage.join_path(folder, f"{number:05d}.heldout")
    return write_other_runs(read_held_out_batches(paths), path)


def write_withheld_runs(
    files: Sequence[str], folder: str, limits: Limits, mends: bool = False
) -> list[str]:
    """Write the runs of evaluation files, once; return the path, if there are any."""
    if not files:
        return []

    def read_batches() -> Iterator[list[str]]:
        texts = itertools.chain.from_iterable(read_evaluation_texts(path, limits) for path in files)
        while chunk := list(itertools.islice(texts, CHUNK_TEXTS)):
            yield sorted({form for raw in chunk for form in list_forms(raw, mends)})

    return [write_other_runs(read_batches(), storage.join_path(folder, f"{EVALUATION}.heldout"))]


def write_other_runs(batches: Iterable[list[str]], path: str) -> str:
    """Write HELD_RUN of held-out texts, once; return the path."""
    if storage.exists(f"{path}.starts"):
        return path
    hasher = NGramHasher()
    for texts in batches:
        hasher.add_texts(texts, np.ones(len(texts), bool))
    starts = hasher.held_out.save(path)
    storage.write_bytes(f"{path}.starts", starts.tobytes())
    return path


def read_held_out_batches(paths: Iterable[str]) -> Iterator[list[str]]:
    """Yield the dev and test reviews of corpus files, without their titles."""
    columns = ["split", "has_title", "sentences"]
    for path in paths:
        with storage.open_bytes(path) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=columns):
                chosen = pc.is_in(batch["split"].cast(pa.string()), pa.array(HELD_OUT_SPLITS))
                rows = batch.filter(chosen).to_pylist()
                yield [" ".join(row["sentences"][row["has_title"] :]) for row in rows]


def list_run_parts(
    counts: list[UnitSize], others: BucketedFiles = buckets.NO_FILES
) -> Iterator[Part]:
    """Yield the parts of the buckets that are compared; `others` are no reviews of the dump."""
    runs = others.count_rows() + sum(unit.held_out_runs for unit in counts)
    reviews = sum(unit.prepared for unit in counts)
    return buckets.list_parts(buckets.count_buckets(runs, BUCKET_RUNS, reviews))


@contextmanager
def open_part(
    part: Part,
    prepared: str,
    folder: str,
    units: Sequence[UnitSize],
    copies: Sequence[str],
    others: BucketedFiles,
) -> Iterator[tuple[BucketReader, Callable[[int], Iterator[tuple[str, np.ndarray]]]]]:
    """Yield two functions of the number of a bucket: what reads RUN of each unit, and what reads
    files of held-out texts and their HELD_RUN, without reviews in the `copies` of units.
    """
    runs, held = (buckets.list_unit_files(prepared, units, kind) for kind in ("runs", "heldout"))
    with (
        buckets.open_part(part, runs, RUN) as read_runs,
        buckets.open_part(part, held, HELD_RUN) as read_own,
        buckets.open_part(part, others, HELD_RUN) as read_others,
        open_files(folder, copies, "copies") as read_copies,
    ):

        def read_held(bucket: int) -> Iterator[tuple[str, np.ndarray]]:
            for path, rows in zip(others.paths, read_others(bucket), strict=True):
                yield common_ngrams.name_file(path), rows
            for unit, rows in zip(units, read_own(bucket), strict=True):
                copied = np.frombuffer(read_copies(unit.unit), ROW_NUMBER)
                yield unit.unit, rows[~np.isin(rows["row"], copied)]

        yield read_runs, read_held


def write_common(
    part: Part,
    prepared: str,
    folder: str,
    units: list[UnitSize],
    copies: Sequence[str] = (),
    others: BucketedFiles = buckets.NO_FILES,
) -> str:
    """Write which n-grams of a part are common, once; evaluation files do not count."""
    path = storage.join_path(folder, f"{part[0]:03d}.common")
    if storage.exists(path):
        return path
    common = [np.empty(0, common_ngrams.HASH)]
    reviews = sum(unit.prepared for unit in units)
    with open_part(part, prepared, folder, units, copies, others) as (read_runs, read_held):
        for bucket in buckets.list_buckets_of(part) if has_held_out(units, others) else ():
            texts = [rows for name, rows in read_held(bucket) if name != EVALUATION]
            counted = NGramTexts(_join_texts(texts))
            for rows in read_runs(bucket):
                counted.add_trained(rows)
            common.append(counted.list_common(reviews))
    storage.write_bytes(path, np.concatenate(common).tobytes())
    return path


def has_held_out(units: Sequence[UnitSize], others: BucketedFiles) -> bool:
    """Return whether there is a held-out text."""
    return bool(others.paths) or any(unit.held_out_runs for unit in units)


def list_held_out_files(
    units: list[UnitSize], prepared: str, others: BucketedFiles = buckets.NO_FILES
) -> Iterator[str]:
    """Yield the files of HELD_RUN, those of units first."""
    for unit in units:
        if unit.held_out_runs:
            yield storage.join_path(prepared, f"{unit.unit}.heldout")
    yield from others.paths


def write_matches(
    part: Part,
    prepared: str,
    folder: str,
    units: list[UnitSize],
    copies: Sequence[str] = (),
    others: BucketedFiles = buckets.NO_FILES,
    common: Sequence[str] = (),
    counts: Sequence[str] = (),
) -> str:
    """Write what the reviews of all units share with held-out ones in a part, once; return the path
    of MATCH, unit by unit; .starts says where each begins. `counts` are of `write_counts`.
    """
    path = storage.join_path(folder, f"{part[0]:03d}.matches")
    if storage.exists(f"{path}.starts"):
        return path
    spooled, known = BucketedRows(UNIT_MATCH), common_ngrams.read_common(common)
    shift = np.uint64(64 - max(len(units), buckets.MAX_BUCKETS).bit_length())
    with (
        open_part(part, prepared, folder, units, copies, others) as (read_runs, read_held),
        open_files(folder, counts, "counts") as read_counts,
    ):
        for bucket in buckets.list_buckets_of(part) if has_held_out(units, others) else ():
            held_out = None  # what it held goes before the next is read
            own = known[buckets.number_buckets(known, part[2]) == bucket]
            held_out = HeldOutNGrams(
                [
                    common_ngrams.discount(rows, read_counts(name), own)
                    for name, rows in read_held(bucket)
                ],
                own,
            )
            for number, runs in enumerate(read_runs(bucket)):
                for matches in held_out.find_matches(runs):
                    rows = np.empty(len(matches), UNIT_MATCH)
                    rows["unit"], rows["match"] = np.uint64(number) << shift, matches
                    spooled.add_rows(rows)
    sizes = np.zeros(len(units), np.int64)
    with tempfile.TemporaryDirectory() as spool:
        bounds = spooled.save(f"{spool}/rows").tolist()
        with (
            open(f"{spool}/rows", "rb") as read,
            storage.atomic_path(path) as written,
            open(written, "wb") as file,
        ):
            for first, last in itertools.pairwise(bounds):
                rows = np.fromfile(read, UNIT_MATCH, last - first)
                rows = rows[np.argsort(rows["unit"], kind="stable")]
                file.write(rows["match"].tobytes())
                cuts = find_runs(rows["unit"])
                sizes[(rows["unit"][cuts[:-1]] >> shift).astype(np.int64)] = np.diff(cuts)
    storage.write_bytes(f"{path}.starts", buckets.compute_starts(sizes).tobytes())
    return path


@contextmanager
def open_files(folder: str, names: Sequence[str], ending: str) -> Iterator[Callable[[str], bytes]]:
    """Yield what returns the bytes of NAME.ending in a folder; none for other names."""
    paths = [storage.join_path(folder, f"{name}.{ending}") for name in names]
    places: dict[str, tuple[int, int]] = {}
    with tempfile.TemporaryFile() as spool:
        for name, packed in zip(names, storage.map_paths(storage.read_bytes, paths), strict=True):
            places[name] = spool.tell(), len(packed)
            spool.write(packed)

        def read(name: str) -> bytes:
            begin, size = places.get(name, (0, 0))
            spool.seek(begin)
            return spool.read(size)

        yield read


def _join_texts(parts: list[np.ndarray]) -> np.ndarray:
    """Return HELD_RUN of several files; `parts` is empty then."""
    rows = np.concatenate([np.empty(0, HELD_RUN), *parts])
    parts.clear()  # which hold as much again
    return rows


def list_ngrams(words: Words) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hashes of runs (uint64), those of whole texts last, and the text of each; and how many
    runs each text has (uint32).
    """
    runs, owners = words.hash_runs(RUN_WORDS)
    sizes = np.bincount(owners, minlength=words.texts).astype(np.uint32)
    texts = np.flatnonzero(words.count_words() >= MIN_WORDS).astype(np.uint32)
    runs = np.concatenate([runs & ~WHOLE, words.hash_texts()[texts] | WHOLE])
    return runs, np.concatenate([owners, texts]), sizes


def drop_repeated_runs(runs: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each run of a text once, and the text of each, in their order."""
    order = np.argsort(runs)
    equal = runs[order[1:]] == runs[order[:-1]]
    several = order[np.append(equal, False) | np.append(False, equal)] if len(runs) else order
    several = several[np.lexsort((owners[several], runs[several]))]
    stays = np.ones(len(runs), dtype=bool)
    stays[several] = mark_firsts(runs[several], owners[several])
    return runs[stays], owners[stays]


def count_shared_runs(
    runs: np.ndarray, owners: np.ndarray, look_up: LookUp
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield texts, held-out texts and how many distinct runs both have, each pair of texts once."""
    distinct, numbers = np.unique(runs, return_inverse=True)
    counts, held = look_up(distinct)
    begins = np.cumsum(counts) - counts
    known = counts[numbers] > 0
    pairs = drop_repeats(np.sort(owners[known].astype(np.int64) * len(distinct) + numbers[known]))
    of, which = np.divmod(pairs, max(len(distinct), 1))
    counts = counts[which]
    for first, last in cut_groups(of, counts, MATCHES):
        part = slice(first, last)
        texts = held[expand_spans(begins[which[part]], counts[part])]
        matches = np.repeat(of[part] << 32, counts[part]) | texts
        matches, shared = np.unique(matches, return_counts=True)
        yield matches >> 32, matches & 0xFFFFFFFF, shared


def cut_groups(numbers: np.ndarray, weights: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of ascending numbers, equal ones together, of weight `most` about."""
    ends = find_runs(numbers)[1:]
    totals = np.cumsum(weights)[ends - 1]
    first = group = weight = 0
    while group < len(ends):
        group = max(int(np.searchsorted(totals, weight + most, side="right")), group + 1)
        last, weight = int(ends[group - 1]), int(totals[group - 1])
        yield first, last
        first = last


class HeldOutNGrams:
    """The held-out runs of a bucket, by run, and the texts that have them."""

    def __init__(self, parts: list[np.ndarray], common: np.ndarray) -> None:
        """Take the rows of the bucket in each file (`parts` is empty then), none `common`."""
        rows = np.zeros(len(common), HELD_RUN)
        rows["run"], rows["text"] = common, COMMON
        parts.append(rows)
        rows = _join_texts(parts)
        rows = keep_first_texts(rows.take(np.argsort(rows["run"])))  # faster than indexing
        self._runs, texts, sizes = (
            np.ascontiguousarray(rows[name]) for name in ("run", "text", "size")
        )
        del rows  # 24 bytes for each run; what follows takes as much again
        self._texts, places, owners = np.unique(texts, return_index=True, return_inverse=True)
        self._owners, self._sizes = owners.astype(np.uint32), sizes[places]
        self._filter = HashFilter(self._runs)

    def find_matches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield MATCH of reviews, of which `rows` are the RUN of this bucket."""
        if not len(self._runs):
            return
        rows = rows[self._filter.find(rows["run"])]
        runs = np.ascontiguousarray(rows["run"])
        order = np.argsort(runs)  # in which the search takes half the time
        places = np.searchsorted(self._runs, runs[order])
        known = order[self._runs.take(places, mode="clip") == runs[order]]
        whole = common_ngrams.is_whole(runs[known])
        for chosen, each in ((known[~whole], 1), (known[whole], EQUAL)):
            owners = rows["text"][chosen]
            for reviews, held, shared in count_shared_runs(runs[chosen], owners, self._look_up):
                matches = np.empty(len(reviews), MATCH)
                matches["row"], matches["shared"] = reviews, shared * each
                matches["text"], matches["size"] = self._texts[held], self._sizes[held]
                yield matches

    def _look_up(self, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = np.searchsorted(self._runs, runs)
        counts = np.searchsorted(self._runs, runs, side="right") - first
        return counts, self._owners[expand_spans(first, counts)]


def keep_first_texts(rows: np.ndarray) -> np.ndarray:
    """Return rows sorted by run: of each run COMMON_TEXTS distinct texts at most, once each."""
    equal = np.diff(rows["run"]) == 0
    several = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if not len(several):
        return rows
    runs, texts = rows["run"][several], rows["text"][several]
    order = np.lexsort((texts, runs))
    is_first = mark_firsts(runs[order], texts[order])
    stays = np.ones(len(rows), bool)
    stays[several[order[~is_first]]] = False
    distinct = order[is_first]
    bounds = find_runs(runs[distinct])
    rank = np.arange(len(distinct)) - np.repeat(bounds[:-1], np.diff(bounds))
    stays[several[distinct[rank >= COMMON_TEXTS]]] = False
    return rows.compress(stays)


def find_near(matches: np.ndarray, first_row: int, sizes: np.ndarray) -> np.ndarray:
    """Return whether each review from a row on, which has so many runs, nearly repeats a held-out
    text, by MATCH, one for each pair.
    """
    sizes = sizes.astype(np.int64)
    rows, is_common = matches["row"].astype(np.int64) - first_row, matches["text"] == COMMON
    sizes[rows[is_common]] -= matches["shared"][is_common]
    has_little = np.zeros(len(sizes), bool)
    has_little[rows[is_common]] = sizes[rows[is_common]] < common_ngrams.MIN_OWN
    rows, pairs = rows[~is_common], matches[~is_common]
    is_near = pairs["shared"] >= MIN_OVERLAP * np.minimum(sizes[rows], pairs["size"])
    near = np.zeros(len(sizes), bool)
    near[rows[is_near & (~has_little[rows] | (pairs["shared"] >= EQUAL))]] = True
    return near


def add_up_matches(matches: np.ndarray) -> np.ndarray:
    """Return MATCH of several buckets, one for each pair, by row."""
    matches = matches.take(np.lexsort((matches["text"], matches["row"])))
    firsts = find_runs(matches["row"], matches["text"])[:-1]
    summed = matches.take(firsts)
    if len(firsts):
        summed["shared"] = np.add.reduceat(matches["shared"], firsts)
    return summed


class UnitMatches:
    """What the reviews of a unit share with held-out ones, added up over all parts."""

    def __init__(self, number: int, paths: Sequence[str]) -> None:
        """Take the number of the unit among all, and the files of all parts (`write_matches`)."""
        places = (number * buckets.STARTS.itemsize, (number + 2) * buckets.STARTS.itemsize)
        packed = storage.read_each((f"{path}.starts", *places) for path in paths)
        bounds = [np.frombuffer(one, buckets.STARTS) * np.uint64(MATCH.itemsize) for one in packed]
        stretches = (
            (path, int(first), int(last)) for path, (first, last) in zip(paths, bounds, strict=True)
        )
        found = np.frombuffer(b"".join(storage.read_each(stretches)), MATCH)
        self._matches = add_up_matches(found)

    def mark_near(self, first_row: int, sizes: np.ndarray) -> np.ndarray:
        """Return whether each review from a row on, with so many runs, is near a held-out one."""
        bounds = np.searchsorted(self._matches["row"], [first_row, first_row + len(sizes)])
        return find_near(self._matches[slice(*bounds)], first_row, sizes)
