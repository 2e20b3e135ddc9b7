"""Finds the reviews that repeat a held-out text, or nearly so, so that none is trained on.

Two texts nearly repeat each other if the shorter one has half of its runs of 8 words in the other,
but for those that many texts share (common_ngrams.py). Shorter texts are withheld only if the words
are equal: "i love it" is in half of all reviews. No worker holds more than a bucket of them.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.deduplication import buckets, common_ngrams, evaluation_texts
from amazon_electra.beam_jobs.deduplication.buckets import HELD_RUN, RUN, Bucket
from amazon_electra.beam_jobs.deduplication.common_ngrams import WHOLE, HashFilter, NGramTexts
from amazon_electra.beam_jobs.deduplication.exact import ROW_NUMBER
from amazon_electra.beam_jobs.reading.work_units import UnitSize
from amazon_electra.beam_jobs.text.spans import drop_repeats, expand_spans, find_runs, mark_firsts
from amazon_electra.beam_jobs.text.word_runs import BATCH_TEXTS, Words, split_words

RUN_WORDS = 8
MIN_OVERLAP = 0.5
COMMON_TEXTS = 100  # held-out texts that a run is compared with: pairs grow linearly with a dump
MATCHES = 1 << 18  # pairs of a run and a held-out text that has it, which are counted at once
HELD_OUT_SPLITS = ("dev", "test")  # the splits that models are chosen and judged by
MATCH = np.dtype([("text", "<u8"), ("row", "<u4"), ("size", "<u4"), ("shared", "<u4")])
"""A held-out text, a review's row, the runs of the text, those of both (of COMMON: common ones)."""
COMMON = np.uint64(0xFFFFFFFFFFFFFFFF)
EQUAL = 1 << 30  # runs that texts of equal words count as sharing: more than any text has
EVALUATION = "withheld"  # name of the file of the texts of evaluation files
BUCKET_RUNS = 1 << 22  # held-out runs of a bucket at most, 96 MiB
CHUNK_TEXTS = 4096  # evaluation texts whose forms are held at once


class NGramHasher:
    """Hashes the runs of reviews in the order of their numbers."""

    def __init__(self) -> None:
        self.trained, self.held_out = buckets.BucketedRows(RUN), buckets.BucketedRows(HELD_RUN)
        self.texts = 0

    def add_texts(self, texts: list[str], is_held_out: np.ndarray) -> np.ndarray:
        """Add the runs of the next reviews; return how many of 8 words each has, uint32 [texts]."""
        sizes = np.zeros(len(texts), np.uint32)
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = slice(start, start + BATCH_TEXTS)
            sizes[batch] = self._add_words(split_words(texts[batch]), is_held_out[batch])
        return sizes

    def _add_words(self, words: Words, is_held_out: np.ndarray) -> np.ndarray:
        hashes, (runs, owners) = words.hash_texts(), words.hash_runs(RUN_WORDS)
        sizes = np.bincount(owners, minlength=words.texts).astype(np.uint32)
        whole = np.flatnonzero(words.count_words() >= evaluation_texts.MIN_WORDS).astype(np.uint32)
        runs = np.concatenate([runs & ~WHOLE, hashes[whole] | WHOLE])
        owners = np.concatenate([owners, whole])
        is_held, before = is_held_out[owners], np.uint32(self.texts)
        trained = np.empty(len(runs) - int(is_held.sum()), RUN)
        trained["run"], trained["text"] = runs[~is_held], owners[~is_held] + before
        trained["words"] = hashes[owners[~is_held]] >> np.uint64(32)
        self.trained.add_rows(trained)
        distinct, owners = drop_repeated_runs(runs[is_held], owners[is_held])
        held = np.empty(len(distinct), HELD_RUN)
        held["run"], held["text"], held["row"] = distinct, hashes[owners], owners + before
        of_words = owners[~common_ngrams.is_whole(distinct)]
        held["size"] = np.bincount(of_words, minlength=words.texts)[owners]
        self.held_out.add_rows(held)
        self.texts += words.texts
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

    def read_batches() -> Iterator[list[str]]:
        texts = itertools.chain.from_iterable(
            evaluation_texts.read_evaluation_texts(path, limits) for path in files
        )
        while chunk := list(itertools.islice(texts, CHUNK_TEXTS)):
            yield sorted(
                {form for raw in chunk for form in evaluation_texts.list_forms(raw, mends)}
            )

    path = storage.join_path(folder, f"{EVALUATION}.heldout")
    return [write_other_runs(read_batches(), path)] if files else []


def write_other_runs(batches: Iterable[list[str]], path: str) -> str:
    """Write HELD_RUN of held-out texts, once; return the path."""
    if not storage.exists(f"{path}.starts"):
        hasher = NGramHasher()
        for texts in batches:
            hasher.add_texts(texts, np.ones(len(texts), bool))
        storage.write_bytes(f"{path}.starts", hasher.held_out.save(path).tobytes())
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


@dataclass(frozen=True)
class Compared:
    """The reviews of a dump, and the held-out texts with which they are compared."""

    units: Sequence[UnitSize]
    prepared: str = ""  # folder of the units' files
    folder: str = ""  # of what is found
    copies: Sequence[str] = ()  # units with near copies, which are not held out
    others: buckets.BucketedFiles = buckets.NO_FILES  # texts that are no reviews of the dump

    @property
    def reviews(self) -> int:
        return sum(unit.prepared for unit in self.units)

    def list_buckets(self) -> Iterator[Bucket]:
        """Yield the buckets that are compared."""
        runs = self.others.count_rows() + sum(unit.held_out_runs for unit in self.units)
        return buckets.list_buckets(runs, BUCKET_RUNS, self.reviews) if runs else iter(())

    def list_files(self) -> Iterator[str]:
        """Yield the files of HELD_RUN, those of units first."""
        for unit in self.units:
            if unit.held_out_runs:
                yield storage.join_path(self.prepared, f"{unit.unit}.heldout")
        yield from self.others.paths

    def read_held_out(self, bucket: Bucket) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the name and HELD_RUN of each file in a bucket, without reviews in `copies`."""
        names = [common_ngrams.name_file(path) for path in self.others.paths]
        yield from zip(names, buckets.read_bucket(bucket, self.others, HELD_RUN), strict=True)
        names = [unit.unit for unit in self.units]
        copies = self.read_beside("copies", self.copies, names)
        held = buckets.read_units(bucket, self.prepared, self.units, "heldout")
        for name, rows, packed in zip(names, held, copies, strict=True):
            yield name, rows[~np.isin(rows["row"], np.frombuffer(packed, ROW_NUMBER))]

    def read_beside(
        self, ending: str, known: Sequence[str], names: Sequence[str]
    ) -> Iterator[bytes]:
        """Yield the bytes of NAME.ending for each name; none unless it is `known`."""
        known_names = {*known}
        paths = (
            storage.join_path(self.folder, f"{name}.{ending}") if name in known_names else ""
            for name in names
        )
        return storage.map_paths(lambda path: storage.read_bytes(path) if path else b"", paths)


def write_common(bucket: Bucket, compared: Compared) -> str:
    """Write which n-grams of a bucket are common, once; evaluation files do not count."""
    path = storage.join_path(compared.folder, f"{bucket[0]:04d}.common")
    if not storage.exists(path):
        held = compared.read_held_out(bucket)
        own = [rows for name, rows in held if name != EVALUATION]
        counted = NGramTexts(np.concatenate([np.empty(0, HELD_RUN), *own]))
        for rows in buckets.read_units(bucket, compared.prepared, compared.units, "runs"):
            counted.add_trained(rows)
        storage.write_bytes(path, counted.list_common(compared.reviews).tobytes())
    return path


def write_matches(
    bucket: Bucket, compared: Compared, common: Sequence[str], counts: Sequence[str]
) -> str:
    """Write what the reviews of all units share with held-out ones in a bucket, once; return the
    path of MATCH, unit by unit; .starts says where each begins. `counts` are of `write_counts`.
    """
    path = storage.join_path(compared.folder, f"{bucket[0]:04d}.matches")
    if storage.exists(f"{path}.starts"):
        return path
    known = common_ngrams.read_common(common)
    own = known[buckets.number_buckets(known, bucket[1]) == bucket[0]]
    names = [
        *map(common_ngrams.name_file, compared.others.paths),
        *(u.unit for u in compared.units),
    ]
    packed = compared.read_beside("counts", counts, names)
    held = zip(compared.read_held_out(bucket), packed, strict=True)
    held_out = HeldOutNGrams(
        (common_ngrams.discount(rows, one, own) for (_, rows), one in held), own
    )
    sizes = np.zeros(len(compared.units), np.int64)
    units = buckets.read_units(bucket, compared.prepared, compared.units, "runs")
    with storage.atomic_path(path) as written, open(written, "wb") as file:
        for number, runs in enumerate(units):
            for matches in held_out.find_matches(runs):
                file.write(matches.tobytes())
                sizes[number] += len(matches)
    storage.write_bytes(f"{path}.starts", buckets.compute_starts(sizes).tobytes())
    return path


def drop_repeated_runs(runs: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each run of a text once, and the text of each, in their order."""
    order = np.argsort(runs)
    equal = runs[order[1:]] == runs[order[:-1]]
    several = order[np.append(equal, False) | np.append(False, equal)] if len(runs) else order
    several = several[np.lexsort((owners[several], runs[several]))]
    stays = np.ones(len(runs), dtype=bool)
    stays[several] = mark_firsts(runs[several], owners[several])
    return runs[stays], owners[stays]


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

    def __init__(self, parts: Iterable[np.ndarray], common: np.ndarray) -> None:
        """Take the rows of the bucket in each file, none `common`."""
        own = np.zeros(len(common), HELD_RUN)
        own["run"], own["text"] = common, COMMON
        rows = np.concatenate([*parts, own])
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
            for reviews, held, shared in self._count_shared(runs[chosen], rows["text"][chosen]):
                matches = np.empty(len(reviews), MATCH)
                matches["row"], matches["shared"] = reviews, shared * each
                matches["text"], matches["size"] = self._texts[held], self._sizes[held]
                yield matches

    def _count_shared(
        self, runs: np.ndarray, owners: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield pairs of texts and held-out texts, and how many distinct runs both have."""
        distinct, numbers = np.unique(runs, return_inverse=True)
        begins = np.searchsorted(self._runs, distinct)
        counts = np.searchsorted(self._runs, distinct, side="right") - begins
        pairs = drop_repeats(np.sort(owners.astype(np.int64) * len(distinct) + numbers))
        of, which = np.divmod(pairs, max(len(distinct), 1))
        begins, counts = begins[which], counts[which]
        for first, last in cut_groups(of, counts, MATCHES):
            part = slice(first, last)
            texts = self._owners[expand_spans(begins[part], counts[part])]
            matches = np.repeat(of[part] << 32, counts[part]) | texts
            matches, shared = np.unique(matches, return_counts=True)
            yield matches >> 32, matches & 0xFFFFFFFF, shared


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


class UnitMatches:
    """What the reviews of a unit share with held-out ones, added up over all buckets."""

    def __init__(self, number: int, paths: Sequence[str]) -> None:
        """Take the number of the unit among all, and the files of all buckets (`write_matches`)."""
        places = (number * buckets.STARTS.itemsize, (number + 2) * buckets.STARTS.itemsize)
        packed = storage.read_each((f"{path}.starts", *places) for path in paths)
        bounds = [np.frombuffer(one, buckets.STARTS) * np.uint64(MATCH.itemsize) for one in packed]
        stretches = (
            (path, int(first), int(last)) for path, (first, last) in zip(paths, bounds, strict=True)
        )
        matches = np.frombuffer(b"".join(storage.read_each(stretches)), MATCH)
        matches = matches.take(np.lexsort((matches["text"], matches["row"])))
        firsts = find_runs(matches["row"], matches["text"])[:-1]
        self._matches = matches.take(firsts)  # one for each pair, by row
        if len(firsts):
            self._matches["shared"] = np.add.reduceat(matches["shared"], firsts)

    def mark_near(self, first_row: int, sizes: np.ndarray) -> np.ndarray:
        """Return whether each review from a row on, with so many runs, is near a held-out one."""
        begin, end = np.searchsorted(self._matches["row"], [first_row, first_row + len(sizes)])
        matches, sizes = self._matches[begin:end], sizes.astype(np.int64)
        rows, is_common = matches["row"].astype(np.int64) - first_row, matches["text"] == COMMON
        sizes[rows[is_common]] -= matches["shared"][is_common]
        has_little = np.zeros(len(sizes), bool)
        has_little[rows[is_common]] = sizes[rows[is_common]] < common_ngrams.MIN_OWN
        rows, pairs = rows[~is_common], matches[~is_common]
        is_near = pairs["shared"] >= MIN_OVERLAP * np.minimum(sizes[rows], pairs["size"])
        near = np.zeros(len(sizes), bool)
        near[rows[is_near & (~has_little[rows] | (pairs["shared"] >= EQUAL))]] = True
        return near
