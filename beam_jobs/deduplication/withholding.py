"""No leak: a review whose text is held out, exactly or nearly, never reaches pre-training.

Held out are the texts of evaluation files and, of a corpus, its own dev and test reviews. Exactly:
the words are equal, whatever their case and the punctuation. Nearly: of the runs of 8 words of the
shorter of the two texts at least half are in the other one. Texts of fewer than 8 words are
withheld exactly only: "i love it" is in half of all reviews. GPT-3 took 13 words and any overlap
(Brown et al. 2020, appendix C), which on reviews, often shorter than 13 words, would miss most
copies.

The held-out texts are an index of hashes in a folder, sorted, some 1 KB a text. It is built
bucket by bucket. A worker maps a filter of it into memory, which workers share that find it on
their own machine, and reads from the disk what the filter lets through.
"""

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from beam_jobs.deduplication import evaluation_texts, index_files
from beam_jobs.deduplication.index_files import COLUMNS, RUN, RunSorter, compute_shift, mark_runs
from beam_jobs.job import storage
from beam_jobs.job.limits import DEFAULT_LIMITS, Limits
from beam_jobs.text import personal_data
from beam_jobs.text.cleaning import clean_text
from beam_jobs.text.spans import drop_repeats, expand_spans
from beam_jobs.text.word_runs import BATCH_TEXTS, Words, split_words

RUN_WORDS = 8
MIN_OVERLAP = 0.5
BLOCK_RUNS = 1 << 13
"""Runs that are read from the disk at once, where several of them are wanted."""
MATCHES = 1 << 18
"""Pairs of a run and a held-out text that has it, which are counted at once."""
CHUNK_TEXTS = 4096
"""Evaluation texts whose forms are held at once."""


class HeldOutIndex:
    """The held-out texts, as hashes."""

    def __init__(self, folder: str) -> None:
        paths = {name: os.path.join(folder, f"{name}.npy") for name in COLUMNS}
        self.exact, self._sizes, self._dumps, self._stretches, self._filter = (
            np.load(paths[name], mmap_mode="r").view(np.ndarray)
            for name in ("exact", "sizes", "dumps", "stretches", "filter")
        )
        self._runs = open(paths["runs"], "rb", buffering=0)  # noqa: SIM115
        self._first = os.path.getsize(paths["runs"]) - int(self._stretches[-1]) * RUN.itemsize
        self._word_shift = compute_shift(len(self._filter))
        self._stretch_shift = compute_shift(len(self._stretches) - 1)

    @property
    def is_empty(self) -> bool:
        return not self._stretches[-1]

    def find_withheld(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return, per text, whether it is a held-out text, and whether it overlaps with one."""
        exact, near = self._search(texts, 0, with_exact=True)
        return exact, near & ~exact

    def find_near_texts(self, texts: list[str], dump: int = 0) -> np.ndarray:
        """Return, per text, whether it overlaps with one that is held out from `dump` on.

        Of the index is read what the runs of all texts need, each part once: give it many.
        """
        return self._search(texts, dump, with_exact=False)[1]

    def _search(
        self, texts: list[str], dump: int, with_exact: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        exact, sizes = np.zeros(len(texts), bool), np.zeros(len(texts), np.int64)
        runs, owners = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = slice(start, start + BATCH_TEXTS)
            words = split_words(texts[batch])
            if with_exact:
                exact[batch] = self._find_exact(words)
            found, of = list_runs(words)
            sizes[batch] = np.bincount(of, minlength=words.texts)
            maybe = self._filter_runs(found)
            runs.append(found[maybe])
            owners.append(of[maybe].astype(np.int64) + start)
        near = self._find_near(np.concatenate(runs), np.concatenate(owners), sizes, dump)
        return exact, near

    def _find_exact(self, words: Words) -> np.ndarray:
        """Return, per text, whether its words are those of a held-out text."""
        hashes = words.hash_texts()
        if not len(self.exact):
            return np.zeros(len(hashes), dtype=bool)
        places = np.minimum(np.searchsorted(self.exact, hashes), len(self.exact) - 1)
        return self.exact[places] == hashes

    def _filter_runs(self, runs: np.ndarray) -> np.ndarray:
        """Return which runs a held-out text may have."""
        marks = mark_runs(runs)
        return np.flatnonzero(self._filter[runs >> self._word_shift] & marks == marks)

    def _find_near(
        self, runs: np.ndarray, owners: np.ndarray, sizes: np.ndarray, dump: int
    ) -> np.ndarray:
        """Return, per text, whether it overlaps with a held-out one; `owners` are its runs'."""
        near = np.zeros(len(sizes), dtype=bool)
        distinct, numbers = np.unique(runs, return_inverse=True)
        counts, held = self._read_texts(distinct)
        begins = np.cumsum(counts) - counts
        known = counts[numbers] > 0
        pairs = drop_repeats(np.sort(owners[known] * len(distinct) + numbers[known]))
        of, which = np.divmod(pairs, max(len(distinct), 1))
        counts = counts[which]
        for first, last in cut_groups(of, counts, MATCHES):
            part = slice(first, last)
            texts = held[expand_spans(begins[which[part]], counts[part])]
            matches = np.repeat(of[part] << 32, counts[part]) | texts
            near[self._select_overlaps(matches, sizes, dump)] = True
        return near

    def _select_overlaps(self, matches: np.ndarray, sizes: np.ndarray, dump: int) -> np.ndarray:
        """Return which texts overlap with a held-out one; each of `matches` is a run that both
        have: the number of the text, and in the lower 32 bits that of the held-out one.
        """
        matches, shared = np.unique(matches, return_counts=True)
        owners, texts = matches >> 32, matches & 0xFFFFFFFF
        enough = shared >= MIN_OVERLAP * np.minimum(sizes[owners], self._sizes[texts])
        return owners[enough & (self._dumps[texts] <= dump)]

    def _read_texts(self, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return of each of these runs, sorted, how many texts have it, and the texts of all."""
        counts, held = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
        stretches = (runs >> self._stretch_shift).astype(np.int64)
        begins, ends = self._stretches[stretches], self._stretches[stretches + 1]
        blocks = ends // BLOCK_RUNS  # of stretches that end in one, what lies between is read too
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        for first, last in itertools.pairwise([0, *cuts.tolist(), len(runs)]):
            if first == last:
                continue
            rows = self._read_rows(int(begins[first]), int(ends[last - 1]))
            known = np.ascontiguousarray(rows["run"])
            start = np.searchsorted(known, runs[first:last])
            counts.append(np.searchsorted(known, runs[first:last], side="right") - start)
            held.append(rows["text"][expand_spans(start, counts[-1])])
        return np.concatenate(counts), np.concatenate(held)

    def _read_rows(self, start: int, stop: int) -> np.ndarray:
        size = RUN.itemsize
        place = self._first + start * size
        return np.frombuffer(os.pread(self._runs.fileno(), (stop - start) * size, place), RUN)


def cut_groups(numbers: np.ndarray, weights: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of ascending numbers: equal ones in the same, and together no more weight
    than `most`, where more than one number is in it.
    """
    ends = np.flatnonzero(np.diff(numbers, append=-1)) + 1
    totals = np.cumsum(weights)[ends - 1]
    first = group = weight = 0
    while group < len(ends):
        group = max(int(np.searchsorted(totals, weight + most, side="right")), group + 1)
        last, weight = int(ends[group - 1]), int(totals[group - 1])
        yield first, last
        first = last


def list_runs(words: Words) -> tuple[np.ndarray, np.ndarray]:
    """Return hashes of runs (uint64) and the text of each; a short text is one run as a whole."""
    runs, owners = words.hash_runs(RUN_WORDS)
    counts = words.count_words()
    short = (counts >= evaluation_texts.MIN_WORDS) & (counts < RUN_WORDS)
    if not short.any():
        return runs, owners
    owners = np.concatenate([owners, np.flatnonzero(short).astype(np.uint32)])
    return np.concatenate([runs, words.select_texts(short).hash_texts()]), owners


def list_distinct_runs(words: Words) -> tuple[np.ndarray, np.ndarray]:
    """Return each run of a text once, and the text of each, by text and then by run."""
    runs, owners = list_runs(words)
    order = np.lexsort((runs, owners))
    runs, owners = runs[order], owners[order]
    first = np.ones(len(runs), dtype=bool)
    first[1:] = (runs[1:] != runs[:-1]) | (owners[1:] != owners[:-1])
    return runs[first], owners[first]


class IndexWriter:
    """Collects the hashes of held-out texts; `save` sorts one bucket of their runs at a time."""

    def __init__(self) -> None:
        self._runs = RunSorter()
        self._exact = [np.empty(0, np.uint64)]
        self._sizes = [np.empty(0, np.uint32)]
        self._dumps = [np.empty(0, np.uint16)]
        self._texts = 0

    def add_texts(self, texts: list[str]) -> None:
        """Add texts of one line each, each distinct text once."""
        for start in range(0, len(texts), BATCH_TEXTS):
            words = split_words(texts[start : start + BATCH_TEXTS])
            hashes = words.hash_texts()
            _, firsts = np.unique(hashes, return_index=True)
            is_first = np.zeros(len(hashes), dtype=bool)
            is_first[firsts] = words.count_words()[firsts] > 0
            runs, owners = list_distinct_runs(words)
            numbers = np.cumsum(is_first) - 1
            chosen = is_first[owners]
            self._exact.append(hashes[is_first])
            self.add_runs(runs[chosen], numbers[owners[chosen]], int(is_first.sum()), 0)

    def add_runs(self, runs: np.ndarray, owners: np.ndarray, texts: int, dump: int) -> None:
        """Add the distinct runs of some texts, which are held out from `dump` on."""
        self._sizes.append(np.bincount(owners, minlength=texts).astype(np.uint32))
        self._dumps.append(np.full(texts, dump, np.uint16))
        order = np.argsort(runs, kind="stable")
        rows = np.empty(len(runs), RUN)
        rows["run"], rows["text"] = runs[order], owners[order] + self._texts
        self._runs.add_rows(rows)
        self._texts += texts

    def save(self, folder: str) -> None:
        """Write the index."""
        exact = drop_repeats(np.sort(np.concatenate(self._exact)))
        sizes, dumps = np.concatenate(self._sizes), np.concatenate(self._dumps)
        with tempfile.TemporaryDirectory() as local:
            index_files.save_text_columns(local, exact, sizes, dumps)
            self._runs.save(local, self._runs.count_rows())
            index_files.join_parts(local, local)
            index_files.finish_index(local, folder)


def write_index(
    paths: Sequence[str], folder: str, reviews: Iterable[str] = (), limits: Limits = DEFAULT_LIMITS
) -> None:
    """Write the index of evaluation files and of reviews of a corpus, unless an earlier run has."""
    if index_files.is_written(folder):
        return
    writer = IndexWriter()
    texts = itertools.chain.from_iterable(
        evaluation_texts.read_evaluation_texts(path, limits) for path in paths
    )
    for chunk in read_chunks(texts):
        writer.add_texts(sorted({form for raw in chunk for form in list_forms(raw)}))
    for chunk in read_chunks(reviews):
        writer.add_texts(chunk)
    writer.save(folder)


def read_chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield CHUNK_TEXTS texts at a time."""
    rest = iter(texts)
    while chunk := list(itertools.islice(rest, CHUNK_TEXTS)):
        yield chunk


def list_forms(raw: str) -> set[str]:
    """Return a text as a job may have it in a review: clean, with personal data masked or not.

    A text of which nothing is left has no form. Repaired run-ons change no word.
    """
    text = clean_text(raw)
    return {text, personal_data.mask_personal_data(text)[0]} - {""}


@lru_cache(2)
def load_index(folder: str) -> HeldOutIndex:
    """Open an index; one that is far away is copied first, once a worker."""
    if not storage.is_remote(folder):
        return HeldOutIndex(folder)
    with tempfile.TemporaryDirectory() as local:
        index_files.copy_index(folder, local)
        return HeldOutIndex(local)  # what is open stays, though its name is gone
