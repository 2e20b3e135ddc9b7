"""No leak: a review whose text is held out, exactly or nearly, never reaches pre-training.

Held out are the texts of evaluation files; a corpus compares its own dev and test reviews with the
others in buckets (held_out_matches.py). Exactly: the words are equal, whatever their case and the
punctuation. Nearly: they overlap (overlaps.py). Texts of fewer than 8 words are withheld exactly
only: "i love it" is in half of all reviews.

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

from beam_jobs.deduplication import evaluation_texts, index_files, run_filter
from beam_jobs.deduplication.index_files import COLUMNS, RUN, RunSorter
from beam_jobs.deduplication.overlaps import (
    are_near,
    count_shared_runs,
    drop_repeated_runs,
    list_runs,
)
from beam_jobs.job import storage
from beam_jobs.job.limits import DEFAULT_LIMITS, Limits
from beam_jobs.text import personal_data
from beam_jobs.text.cleaning import clean_text
from beam_jobs.text.spans import drop_repeats, expand_spans
from beam_jobs.text.word_runs import BATCH_TEXTS, Words, split_words

BLOCK_RUNS = 1 << 13
"""Runs that are read from the disk at once, where several of them are wanted."""
CHUNK_TEXTS = 4096
"""Evaluation texts whose forms are held at once."""


class HeldOutIndex:
    """The held-out texts, as hashes."""

    def __init__(self, folder: str) -> None:
        paths = {name: os.path.join(folder, f"{name}.npy") for name in COLUMNS}
        self.exact, self._sizes, self._stretches, self._filter = (
            np.load(paths[name], mmap_mode="r").view(np.ndarray)
            for name in ("exact", "sizes", "stretches", "filter")
        )
        self._runs = open(paths["runs"], "rb", buffering=0)  # noqa: SIM115
        self._first = os.path.getsize(paths["runs"]) - int(self._stretches[-1]) * RUN.itemsize
        self._word_shift = run_filter.compute_shift(len(self._filter))
        self._stretch_shift = run_filter.compute_shift(len(self._stretches) - 1)

    @property
    def is_empty(self) -> bool:
        return not self._stretches[-1]

    def find_withheld(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return, per text, whether it is a held-out text, and whether it overlaps with one.

        Of the index is read what the runs of all texts need, each part once: give it many.
        """
        exact, sizes = np.zeros(len(texts), bool), np.zeros(len(texts), np.int64)
        runs, owners = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = slice(start, start + BATCH_TEXTS)
            words = split_words(texts[batch])
            exact[batch] = self._find_exact(words)
            found, of = list_runs(words)
            sizes[batch] = np.bincount(of, minlength=words.texts)
            places = found >> self._word_shift
            maybe = run_filter.select_runs(self._filter, found, places)
            runs.append(found[maybe])
            owners.append(of[maybe].astype(np.int64) + start)
        near = self._find_near(np.concatenate(runs), np.concatenate(owners), sizes)
        return exact, near & ~exact

    def _find_exact(self, words: Words) -> np.ndarray:
        """Return, per text, whether its words are those of a held-out text."""
        hashes = words.hash_texts()
        if not len(self.exact):
            return np.zeros(len(hashes), dtype=bool)
        places = np.minimum(np.searchsorted(self.exact, hashes), len(self.exact) - 1)
        return self.exact[places] == hashes

    def _find_near(self, runs: np.ndarray, owners: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return, per text, whether it overlaps with a held-out one; `owners` are its runs'."""
        near = np.zeros(len(sizes), dtype=bool)
        for texts, held, shared in count_shared_runs(runs, owners, self._read_texts):
            near[texts[are_near(shared, sizes[texts], self._sizes[held])]] = True
        return near

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


class IndexWriter:
    """Collects the hashes of held-out texts; `save` sorts one bucket of their runs at a time."""

    def __init__(self) -> None:
        self._runs = RunSorter()
        self._exact = [np.empty(0, np.uint64)]
        self._sizes = [np.empty(0, np.uint32)]
        self._texts = 0

    def add_texts(self, texts: list[str]) -> None:
        """Add texts of one line each, each distinct text once."""
        for start in range(0, len(texts), BATCH_TEXTS):
            words = split_words(texts[start : start + BATCH_TEXTS])
            hashes = words.hash_texts()
            _, firsts = np.unique(hashes, return_index=True)
            is_first = np.zeros(len(hashes), dtype=bool)
            is_first[firsts] = words.count_words()[firsts] > 0
            runs, owners = drop_repeated_runs(*list_runs(words))
            chosen = is_first[owners]
            numbers = (np.cumsum(is_first) - 1)[owners[chosen]]
            self._exact.append(hashes[is_first])
            self._add_runs(runs[chosen], numbers, int(is_first.sum()))

    def _add_runs(self, runs: np.ndarray, owners: np.ndarray, texts: int) -> None:
        """Add the distinct runs of some texts."""
        self._sizes.append(np.bincount(owners, minlength=texts).astype(np.uint32))
        order = np.argsort(runs, kind="stable")
        rows = np.empty(len(runs), RUN)
        rows["run"], rows["text"] = runs[order], owners[order] + self._texts
        self._runs.add_rows(rows)
        self._texts += texts

    def save(self, folder: str) -> None:
        """Write the index."""
        exact = drop_repeats(np.sort(np.concatenate(self._exact)))
        with tempfile.TemporaryDirectory() as local:
            index_files.save_text_columns(local, exact, np.concatenate(self._sizes))
            self._runs.save(local)
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
