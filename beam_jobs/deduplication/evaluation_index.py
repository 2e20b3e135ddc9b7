"""No leak: a review whose text is in an evaluation file, exactly or nearly, never reaches
pre-training.

Exactly: the words are equal, whatever their case and the punctuation. Nearly: they overlap
(overlaps.py). Texts of fewer than 8 words are withheld exactly only: "i love it" is in half of all
reviews. (A corpus compares its own dev and test reviews with the others in buckets, held_out.py.)

The texts are an index of hashes in a folder, some 1 KB a text, which workers map into memory:

exact.npy     hashes of whole texts, sorted
runs.npy      hashes of runs of words, sorted
owners.npy    of each run the number of a text that has it
filter.npy    a Bloom filter of the runs
sizes.npy     by text: how many runs it has
index.json    digests of these; written last: the index is whole if and only if it is there
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from beam_jobs.core import storage
from beam_jobs.core.files import hash_file
from beam_jobs.core.limits import DEFAULT_LIMITS, Limits
from beam_jobs.deduplication import overlaps
from beam_jobs.deduplication.evaluation_texts import read_evaluation_texts
from beam_jobs.deduplication.overlaps import RUN, drop_repeated_runs, list_runs
from beam_jobs.text.cleaning import clean_text
from beam_jobs.text.personal_data import mask_personal_data
from beam_jobs.text.spans import drop_repeats, expand_spans
from beam_jobs.text.word_runs import BATCH_TEXTS, split_words

COLUMNS = ("exact", "sizes", "runs", "owners", "filter")
CHUNK_TEXTS = 4096
"""Evaluation texts whose forms are held at once."""


class EvaluationIndex:
    """The texts of evaluation files, as hashes."""

    def __init__(self, folder: str) -> None:
        self._exact, self._sizes, self._runs, self._owners, self._filter = (
            np.load(os.path.join(folder, f"{name}.npy"), mmap_mode="r").view(np.ndarray)
            for name in COLUMNS
        )
        self._shift = overlaps.compute_shift(len(self._filter))

    def find_withheld(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return, per text, whether it is an evaluation text, and whether it overlaps with one."""
        exact, sizes = np.zeros(len(texts), bool), np.zeros(len(texts), np.int64)
        runs, owners = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = slice(start, start + BATCH_TEXTS)
            words = split_words(texts[batch])
            hashes = words.hash_texts()
            if len(self._exact):
                places = np.minimum(np.searchsorted(self._exact, hashes), len(self._exact) - 1)
                exact[batch] = self._exact[places] == hashes
            found, of = list_runs(words)
            sizes[batch] = np.bincount(of, minlength=words.texts)
            maybe = overlaps.select_runs(self._filter, found, found >> self._shift)
            runs.append(found[maybe])
            owners.append(of[maybe].astype(np.int64) + start)
        near = np.zeros(len(texts), bool)
        for rows, held, shared in overlaps.count_shared_runs(
            np.concatenate(runs), np.concatenate(owners), self._look_up
        ):
            near[rows[overlaps.are_near(shared, sizes[rows], self._sizes[held])]] = True
        return exact, near & ~exact

    def _look_up(self, runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = np.searchsorted(self._runs, runs)
        counts = np.searchsorted(self._runs, runs, side="right") - first
        return counts, self._owners[expand_spans(first, counts)]


class IndexWriter:
    """Collects the hashes of texts in memory, some 1 KB a text; `save` writes the index."""

    def __init__(self) -> None:
        self._exact = [np.empty(0, np.uint64)]
        self._sizes = [np.empty(0, np.uint32)]
        self._rows = [np.empty(0, RUN)]
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
            chosen, count = is_first[owners], int(is_first.sum())
            numbers = (np.cumsum(is_first) - 1)[owners[chosen]]
            rows = np.empty(len(numbers), RUN)
            rows["run"], rows["text"] = runs[chosen], numbers + self._texts
            self._exact.append(hashes[is_first])
            self._sizes.append(np.bincount(numbers, minlength=count).astype(np.uint32))
            self._rows.append(rows)
            self._texts += count

    def save(self, folder: str) -> None:
        """Write the index."""
        rows = np.concatenate(self._rows)
        runs, owners = rows["run"], rows["text"]
        order = np.argsort(runs, kind="stable")
        runs, owners = runs[order], owners[order]
        words = overlaps.count_filter_words(len(runs))
        marks = overlaps.build_filter(runs, runs >> overlaps.compute_shift(words), words)
        exact = drop_repeats(np.sort(np.concatenate(self._exact)))
        columns = (exact, np.concatenate(self._sizes), runs, owners, marks)
        digests = {}
        for name, column in zip(COLUMNS, columns, strict=True):
            with storage.atomic_path(storage.join_path(folder, f"{name}.npy")) as path:
                with open(path, "wb") as file:
                    np.save(file, column)
                digests[name] = hash_file(path)
        content = {"texts": self._texts, **digests}
        storage.write_json(storage.join_path(folder, "index.json"), content)


def write_index(
    paths: Sequence[str], folder: str, reviews: Iterable[str] = (), limits: Limits = DEFAULT_LIMITS
) -> None:
    """Write the index of evaluation files and of reviews of a corpus, unless an earlier run has."""
    if storage.exists(storage.join_path(folder, "index.json")):
        return
    writer = IndexWriter()
    texts = itertools.chain.from_iterable(read_evaluation_texts(path, limits) for path in paths)
    while chunk := list(itertools.islice(texts, CHUNK_TEXTS)):
        writer.add_texts(sorted({form for raw in chunk for form in list_forms(raw)}))
    rest = iter(reviews)
    while chunk := list(itertools.islice(rest, CHUNK_TEXTS)):
        writer.add_texts(chunk)
    writer.save(folder)


def list_forms(raw: str) -> set[str]:
    """Return a text as a job may have it in a review: clean, with personal data masked or not.

    A text of which nothing is left has no form. Repaired run-ons change no word.
    """
    text = clean_text(raw)
    return {text, mask_personal_data(text)[0]} - {""}


@lru_cache(2)
def load_index(folder: str) -> EvaluationIndex:
    """Open an index; one that is far away is copied first, once a worker."""
    if not storage.is_remote(folder):
        return EvaluationIndex(folder)
    with tempfile.TemporaryDirectory() as local:
        for name in COLUMNS:
            with (
                storage.open_bytes(storage.join_path(folder, f"{name}.npy")) as source,
                open(os.path.join(local, f"{name}.npy"), "wb") as copy,
            ):
                shutil.copyfileobj(source, copy, 1 << 20)
        return EvaluationIndex(local)  # what is mapped stays, though its name is gone
