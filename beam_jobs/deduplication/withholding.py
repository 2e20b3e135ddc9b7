"""No leak: a review whose text is held out, exactly or nearly, never reaches pre-training.

Held out are the texts of evaluation files and, of a corpus, its own dev and test reviews. Exactly:
the words are equal, whatever their case and the punctuation. Nearly: of the runs of 8 words of the
shorter of the two texts at least half are in the other one. Texts of fewer than 8 words are
withheld exactly only: "i love it" is in half of all reviews. GPT-3 took 13 words and any overlap
(Brown et al. 2020, appendix C), which on reviews, often shorter than 13 words, would miss most
copies.

The held-out texts are an index of hashes in a folder, sorted, some 1 KB a text. It is built bucket
by bucket and mapped into memory, so that neither depends on how many texts are held out, and the
workers of a machine share it.
"""

import itertools
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import BinaryIO

import numpy as np

from beam_jobs.deduplication import evaluation_texts
from beam_jobs.job import storage
from beam_jobs.job.limits import DEFAULT_LIMITS, Limits
from beam_jobs.text import personal_data
from beam_jobs.text.cleaning import clean_text
from beam_jobs.text.word_runs import BATCH_TEXTS, Words, split_words

RUN_WORDS = 8
MIN_OVERLAP = 0.5
BUCKETS = 256
MIN_BITS = 16
BITS_PER_RUN = 32
"""Of the table that spares most searches: 2^16 bits, or for many runs so many each, at least."""
CHUNK_TEXTS = 4096
"""Evaluation texts whose forms are held at once."""
COLUMNS = ("exact", "runs", "owners", "sizes", "dumps", "bits")
"""Hashes of whole texts; hashes of runs and the text of each; of each text how many runs it has and
from which dump on it is held out; a table of the first bits of runs."""
RUN = np.dtype([("run", "<u8"), ("text", "<u4")])


class HeldOutIndex:
    """The held-out texts, as hashes."""

    def __init__(self, folder: str) -> None:
        columns = (
            np.load(os.path.join(folder, f"{name}.npy"), mmap_mode="r").view(np.ndarray)
            for name in COLUMNS
        )
        self.exact, self._runs, self._owners, self._sizes, self._dumps, self._bits = columns
        self._shift = np.uint64(64 - (len(self._bits).bit_length() + 2))

    @property
    def is_empty(self) -> bool:
        return not len(self._runs)

    def find_withheld(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return, per text, whether it is a held-out text, and whether it overlaps with one."""
        exact, near = np.zeros((2, len(texts)), dtype=bool)
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = slice(start, start + BATCH_TEXTS)
            words = split_words(texts[batch])
            exact[batch] = self.find_exact(words)
            near[batch] = self.find_near(words)
        return exact, near & ~exact

    def find_near_texts(self, texts: list[str], dump: int = 0) -> np.ndarray:
        """Return, per text, whether it overlaps with one that is held out from `dump` on."""
        batches = (texts[i : i + BATCH_TEXTS] for i in range(0, len(texts), BATCH_TEXTS))
        near = [self.find_near(split_words(batch), dump) for batch in batches]
        return np.concatenate([np.zeros(0, dtype=bool), *near])

    def find_exact(self, words: Words) -> np.ndarray:
        """Return, per text, whether its words are those of a held-out text."""
        hashes = words.hash_texts()
        if not len(self.exact):
            return np.zeros(len(hashes), dtype=bool)
        places = np.minimum(np.searchsorted(self.exact, hashes), len(self.exact) - 1)
        return self.exact[places] == hashes

    def find_near(self, words: Words, dump: int = 0) -> np.ndarray:
        """Return, per text, whether it overlaps with one that is held out from `dump` on."""
        near = np.zeros(words.texts, dtype=bool)
        runs, owners = list_runs(words)
        if not len(runs) or not len(self._runs):
            return near
        slots = runs >> self._shift
        bits = self._bits[slots >> np.uint64(3)] >> (slots & np.uint64(7)).astype(np.uint8)
        maybe = np.flatnonzero(bits & 1)
        first = np.searchsorted(self._runs, runs[maybe])
        known = self._runs[np.minimum(first, len(self._runs) - 1)] == runs[maybe]
        first, maybe = first[known], maybe[known]
        last = np.searchsorted(self._runs, runs[maybe], side="right")
        shared: dict[int, set[tuple[int, int]]] = defaultdict(set)
        columns = (owners[maybe], first, last)
        for owner, start, stop in zip(*(column.tolist() for column in columns), strict=True):
            shared[owner].add((start, stop))
        sizes = np.bincount(owners, minlength=words.texts)
        for owner, places in shared.items():
            near[owner] = self._has_overlap(places, int(sizes[owner]), dump)
        return near

    def _has_overlap(self, places: set[tuple[int, int]], runs: int, dump: int) -> bool:
        counts: Counter[int] = Counter()
        for start, stop in places:
            counts.update(self._owners[start:stop].tolist())
        return any(
            shared >= MIN_OVERLAP * min(runs, int(self._sizes[text])) and self._dumps[text] <= dump
            for text, shared in counts.items()
        )


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
    """Collects hashes in buckets of a temporary folder; `save` sorts one bucket at a time."""

    def __init__(self) -> None:
        self._open = ExitStack()
        folder = self._open.enter_context(tempfile.TemporaryDirectory())
        self._buckets = [
            self._open.enter_context(open(os.path.join(folder, str(bucket)), "w+b"))  # noqa: SIM115
            for bucket in range(BUCKETS)
        ]
        self._exact: list[np.ndarray] = []
        self._sizes: list[np.ndarray] = []
        self._dumps: list[np.ndarray] = []
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
        bounds = np.searchsorted(rows["run"] >> np.uint64(56), np.arange(BUCKETS + 1))
        for bucket, (start, stop) in enumerate(itertools.pairwise(bounds.tolist())):
            self._buckets[bucket].write(rows[start:stop].tobytes())
        self._texts += texts

    def save(self, folder: str) -> None:
        """Write the index; index.json, written last, says that it is whole and what is in it."""
        with self._open, tempfile.TemporaryDirectory() as local:
            columns = {"exact": self._exact, "sizes": self._sizes, "dumps": self._dumps}
            for name, parts in columns.items():
                whole = np.concatenate(parts) if parts else np.empty(0, np.uint64)
                np.save(
                    os.path.join(local, f"{name}.npy"),
                    np.unique(whole) if name == "exact" else whole,
                )
            self._save_runs(local)
            digests = {}
            for name in COLUMNS:
                path = os.path.join(local, f"{name}.npy")
                digests[name] = storage.hash_file(path)
                with storage.atomic_path(storage.join_path(folder, f"{name}.npy")) as final:
                    shutil.move(path, final)
        storage.write_json(
            storage.join_path(folder, "index.json"), {"texts": self._texts, **digests}
        )

    def _save_runs(self, folder: str) -> None:
        runs = sum(bucket.tell() for bucket in self._buckets) // RUN.itemsize
        bits = max(MIN_BITS, (runs * BITS_PER_RUN - 1).bit_length())
        with (
            open_column(folder, "runs", "<u8", runs) as run_file,
            open_column(folder, "owners", "<u4", runs) as owner_file,
            open_column(folder, "bits", "|u1", 1 << (bits - 3)) as bit_file,
        ):
            for number, bucket in enumerate(self._buckets):
                bucket.seek(0)
                rows = np.frombuffer(bucket.read(), RUN)
                rows = rows[np.argsort(rows["run"], kind="stable")]
                run_file.write(rows["run"].tobytes())
                owner_file.write(rows["text"].tobytes())
                slots = np.zeros((1 << bits) // BUCKETS, dtype=bool)
                slots[(rows["run"] >> np.uint64(64 - bits)) - np.uint64(number * len(slots))] = True
                bit_file.write(np.packbits(slots, bitorder="little").tobytes())


@contextmanager
def open_column(folder: str, name: str, kind: str, rows: int) -> Iterator[BinaryIO]:
    """Open a .npy file of so many numbers, which the caller writes."""
    with open(os.path.join(folder, f"{name}.npy"), "wb") as file:
        header = {"descr": kind, "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(file, header)
        yield file


def write_index(
    paths: Sequence[str], folder: str, reviews: Iterable[str] = (), limits: Limits = DEFAULT_LIMITS
) -> None:
    """Write the index of evaluation files and of reviews of a corpus, unless an earlier run has."""
    if storage.exists(storage.join_path(folder, "index.json")):
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
    """Map an index into memory; one that is far away is copied first, once a worker."""
    if not storage.is_remote(folder):
        return HeldOutIndex(folder)
    with tempfile.TemporaryDirectory() as local:
        for name in COLUMNS:
            with (
                storage.open_bytes(storage.join_path(folder, f"{name}.npy")) as source,
                open(os.path.join(local, f"{name}.npy"), "wb") as copy,
            ):
                shutil.copyfileobj(source, copy)
        return HeldOutIndex(local)  # what is mapped stays, though its name is gone
