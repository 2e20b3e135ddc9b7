"""Finds the reviews that repeat a held-out text, or nearly so, so that none is trained on.

Two texts nearly repeat each other if the shorter one has half of its runs of 8 words in the other,
but for common n-grams, which many reviews share, such as a disclaimer. Shorter texts are withheld
only if the words are equal: "i love it" is in half of all reviews. No worker holds more than a
bucket: NNNN.common has the hashes of its common n-grams, FILE.counts the TEXT_NGRAMS of a file.
"""

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.deduplication import buckets, evaluation_texts
from amazon_electra.beam_jobs.deduplication.buckets import HELD_RUN, RUN, Bucket
from amazon_electra.beam_jobs.deduplication.exact import ROW_NUMBER
from amazon_electra.beam_jobs.reading.work_units import UnitSize
from amazon_electra.beam_jobs.text.spans import drop_repeats, expand_spans, find_runs, mark_firsts
from amazon_electra.beam_jobs.text.word_runs import BATCH_TEXTS, HashedWords, split_words

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
MIN_TEXTS, MAX_TEXTS, MIN_HELD = 20, 800, 2
COMMON_SHARE = 0.002
HASH = np.dtype("<u8")
TEXT_NGRAMS = np.dtype([("row", "<u4"), ("runs", "<u4")])  # how many are common
MIN_OWN = 8  # n-grams beside common ones; with fewer a text is withheld only if words are equal
CHUNK_ROWS = 1 << 20  # rows of a file of held-out n-grams that are held at once, 24 MiB
SLOTS = 8  # of a HashFilter, for each hash: one of 8 others passes
WHOLE = np.uint64(1)  # the last bit of a hash: 1 for the words of a whole text, 0 for a run


def is_whole(runs: np.ndarray) -> np.ndarray:
    """Return, per hash, whether it is that of a whole text (`NGramHasher`)."""
    return (runs & WHOLE).astype(bool)


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

    def _add_words(self, words: HashedWords, is_held_out: np.ndarray) -> np.ndarray:
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
        of_words = owners[~is_whole(distinct)]
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
        names = [name_file(path) for path in self.others.paths]
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


def find_common(held: np.ndarray, trained: Iterable[np.ndarray], reviews: int) -> np.ndarray:
    """Return the hashes of n-grams that many distinct texts of so many reviews have, ascending.

    `held` are the HELD_RUN of held-out reviews in a bucket, `trained` the RUN of the others.
    """
    runs = held["run"]
    ordered = np.sort(runs[~is_whole(runs)])
    step = MIN_HELD - 1
    often = np.unique(ordered[step:][ordered[step:] == ordered[:-step]])
    chosen = np.flatnonzero(np.isin(runs, often))
    order = chosen[np.lexsort((held["text"][chosen], runs[chosen]))]
    order = order[mark_firsts(runs[order], held["text"][order])]
    runs, texts = np.unique(runs[order], return_counts=True)
    if not len(runs):
        return runs
    del held, ordered, chosen, order  # as large as all that follows
    passing = HashFilter(runs)
    pairs = np.empty(0, np.uint64)  # the number of an n-gram, shifted, and the hash of a text
    for rows in trained:
        rows = rows[passing.find(rows["run"])]
        places = np.searchsorted(runs, rows["run"])
        known = runs.take(places, mode="clip") == rows["run"]
        found = places[known].astype(np.uint64) << np.uint64(32) | rows["words"][known]
        pairs = np.union1d(pairs, found)
        bounds = find_runs(pairs >> np.uint64(32))
        rank = np.arange(len(pairs)) - np.repeat(bounds[:-1], np.diff(bounds))
        pairs = pairs[rank < MAX_TEXTS]
    numbers = (pairs >> np.uint64(32)).astype(np.int64)
    many = min(max(math.ceil(COMMON_SHARE * reviews), MIN_TEXTS), MAX_TEXTS)
    return runs[(texts >= MIN_HELD) & (texts + np.bincount(numbers, minlength=len(runs)) >= many)]


def write_common(bucket: Bucket, compared: Compared) -> str:
    """Write which n-grams of a bucket are common, once; evaluation files do not count."""
    path = storage.join_path(compared.folder, f"{bucket[0]:04d}.common")
    if not storage.exists(path):
        held = compared.read_held_out(bucket)
        own = (rows for name, rows in held if name != EVALUATION)
        whole = np.concatenate([np.empty(0, HELD_RUN), *own])
        trained = buckets.read_units(bucket, compared.prepared, compared.units, "runs")
        storage.write_bytes(path, find_common(whole, trained, compared.reviews).tobytes())
    return path


def read_common(paths: Sequence[str]) -> np.ndarray:
    """Return the hashes of the common n-grams of all buckets (`write_common`), ascending."""
    packed = storage.map_paths(storage.read_bytes, paths)
    return np.sort(np.frombuffer(b"".join(packed), HASH))


def write_counts(path: str, folder: str, common: Sequence[str]) -> Iterator[str]:
    """Write TEXT_NGRAMS of a file of HELD_RUN, once; yield its name, if there are any."""
    name = name_file(path)
    written = storage.join_path(folder, f"{name}.counts")
    if not storage.exists(written):
        known = read_common(common)
        size, step = storage.get_size(path) if len(known) else 0, CHUNK_ROWS * HELD_RUN.itemsize
        keys, counts = [np.empty(0, np.uint32)], [np.empty(0, np.int64)]
        for begin in range(0, size, step):
            packed = storage.read_range(path, begin, min(size, begin + step))
            rows = np.frombuffer(packed, HELD_RUN)
            found, n = np.unique(rows["row"][np.isin(rows["run"], known)], return_counts=True)
            keys.append(found)
            counts.append(n)
        distinct, which = np.unique(np.concatenate(keys), return_inverse=True)
        counted = np.empty(len(distinct), TEXT_NGRAMS)
        counted["row"] = distinct
        counted["runs"] = np.bincount(which, np.concatenate(counts), len(distinct))
        storage.write_bytes(written, counted.tobytes())
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


def write_matches(
    bucket: Bucket, compared: Compared, common: Sequence[str], counts: Sequence[str]
) -> str:
    """Write what the reviews of all units share with held-out ones in a bucket, once; return the
    path of MATCH, unit by unit; .starts says where each begins. `counts` are of `write_counts`.
    """
    path = storage.join_path(compared.folder, f"{bucket[0]:04d}.matches")
    if storage.exists(f"{path}.starts"):
        return path
    known = read_common(common)
    own = known[buckets.number_buckets(known, bucket[1]) == bucket[0]]
    names = [
        *map(name_file, compared.others.paths),
        *(u.unit for u in compared.units),
    ]
    packed = compared.read_beside("counts", counts, names)
    held = zip(compared.read_held_out(bucket), packed, strict=True)
    held_out = HeldOutNGrams((discount(rows, one, own) for (_, rows), one in held), own)
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
        whole = is_whole(runs[known])
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
        has_little[rows[is_common]] = sizes[rows[is_common]] < MIN_OWN
        rows, pairs = rows[~is_common], matches[~is_common]
        is_near = pairs["shared"] >= MIN_OVERLAP * np.minimum(sizes[rows], pairs["size"])
        near = np.zeros(len(sizes), bool)
        near[rows[is_near & (~has_little[rows] | (pairs["shared"] >= EQUAL))]] = True
        return near
