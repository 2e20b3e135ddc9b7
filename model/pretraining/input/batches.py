"""Prepares the batch of each optimizer step, in a thread while the step before runs.

Everything random here comes from the seed and the step, for the whole batch over all processes;
each process then takes its own rows. So one process, two, or a resumed run see the same masks.
"""

import queue
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.pretraining.input import masking
from model.pretraining.input.mixture import Mixture
from model.pretraining.input.next_sentence import make_pairs
from model.pretraining.input.sequences import Rows, Stream

Arrays = dict[str, NDArray[np.generic]]
PREFETCH_DEPTH = 4  # batches
MASKING, SEGMENTS = 1, 3  # tell their random numbers from those of the stream's order


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens."""

    cls: int
    sep: int
    mask: int


@dataclass(frozen=True)
class Batches:
    """Makes batches of `size` sequences; each rank gets its contiguous share of the rows."""

    stream: Stream | Mixture
    size: int
    special: SpecialTokens
    fraction: float
    replacement: masking.Replacement
    seed: int
    rank: int = 0
    world_size: int = 1
    pairs: bool = False  # next-sentence pairs are made of the documents
    segment_probability: float = 0.0  # else: with which a document is cut into segments A and B

    def iterate_steps(self, first: int, stride: int = 1) -> Iterator[Arrays]:
        """Yield this process's share of the batch of step `first` and of each `stride`th after."""
        for step, rows in enumerate(
            self.stream.iterate_batches(first * self.size, self.size), start=first
        ):
            if (step - first) % stride == 0:
                yield self.prepare_batch(rows, step)

    def prepare_batch(self, rows: Rows, step: int) -> Arrays:
        """Return this process's share of the batch of one step; arrays are [sequences, length]
        unless noted.
        """
        rng = np.random.default_rng([self.seed, MASKING, step])
        arrays = self._make_pairs(rng, rows) if self.pairs else self._lay_out(rows, step)
        input_ids, documents = arrays["input_ids"], arrays["documents"]
        maskable = (
            (documents > 0) & (input_ids != self.special.cls) & (input_ids != self.special.sep)
        )
        share = len(input_ids) // self.world_size
        mine = slice(self.rank * share, (self.rank + 1) * share)
        masked = masking.mask_tokens(
            rng, input_ids, maskable, self.fraction, self.replacement, mine
        )
        shares = {name: array[mine] if array.ndim else array for name, array in arrays.items()}
        return shares | {
            "masked_ids": masked.input_ids,
            "masked_positions": masked.positions,  # [sequences, slots]
            "masked_weights": masked.weights,  # [sequences, slots]
            "keys": masked.keys,  # [sequences, slots]
            "masked_total": np.asarray(
                max(1.0, masked.total), dtype=np.float32
            ),  # over all processes
            "real_total": np.asarray((documents > 0).sum(), dtype=np.float32),  # over all processes
            "squared_total": np.asarray(sum_squared_lengths(documents), dtype=np.float32),  # too
        }

    def _make_pairs(self, rng: np.random.Generator, rows: Rows) -> dict[str, NDArray[Any]]:
        pairs = make_pairs(rng, rows, self.special.cls, self.special.sep)
        return {
            "input_ids": pairs.input_ids,
            "documents": pairs.documents,
            "positions": pairs.positions,
            "types": pairs.types,
            "pair_places": pairs.places,  # [sequences, pair slots]
            "pair_not_next": pairs.not_next,  # [sequences, pair slots]
            "pair_weights": pairs.weights,  # [sequences, pair slots]
            "pairs_total": np.asarray(
                max(1.0, pairs.weights.sum()), dtype=np.float32
            ),  # over all processes
        }

    def _lay_out(self, rows: Rows, step: int) -> dict[str, NDArray[Any]]:
        documents = number_documents(rows)
        positions = number_positions(rows.document_starts)
        arrays = {
            "input_ids": rows.input_ids.astype(np.int64),
            "documents": documents,  # 1, 2 … in each sequence; 0 is padding
            "positions": positions,
        }
        if self.segment_probability:
            rng = np.random.default_rng([self.seed, SEGMENTS, step])
            arrays["types"] = draw_types(rng, rows, documents, positions, self.segment_probability)
        return arrays


def number_documents(rows: Rows) -> NDArray[np.int64]:
    """Return 1 for the tokens of a sequence's first document, 2 for the next …, 0 for padding."""
    numbers = np.cumsum(rows.document_starts, axis=1, dtype=np.int64)
    numbers[np.arange(numbers.shape[1]) >= rows.lengths[:, None]] = 0
    return numbers


def number_positions(document_starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the position of each token in its own document."""
    places = np.arange(document_starts.shape[1], dtype=np.int64)
    return places - np.maximum.accumulate(np.where(document_starts, places, 0), axis=1)


def draw_types(
    rng: np.random.Generator,
    rows: Rows,
    documents: NDArray[np.int64],
    positions: NDArray[np.int64],
    probability: float,
) -> NDArray[np.int64]:
    """Return 1 for the tokens of segments B, 0 elsewhere, [sequences, length], so that the second
    row of the type embeddings is trained.

    google-research/electra, build_pretraining_dataset.py, fills half of an example and then begins
    B; one example in ten is A alone. Here nothing but the types changes, so that rows keep their
    length.

    A document is cut with `probability`, at any of its later sentence starts alike. `documents` and
    `positions` are those of number_documents and number_positions.
    """
    sequences, length = documents.shape
    numbers = documents + np.arange(sequences)[:, None] * (length + 1)
    cuts = rows.sentence_starts & (positions > 1) & (documents > 0)
    places = rng.permutation(np.flatnonzero(cuts))
    cut_documents, first = np.unique(numbers.ravel()[places], return_index=True)
    is_cut = rng.random(len(cut_documents)) < probability
    second_starts = np.full(sequences * (length + 1), length)
    second_starts[cut_documents[is_cut]] = places[first][is_cut] % length
    in_second = np.arange(length) >= second_starts[numbers]
    return (in_second & (documents > 0)).astype(np.int64)


def sum_squared_lengths(documents: NDArray[np.int64]) -> int:
    """Return the sum of length² over the documents, from their numbers [sequences, length]."""
    width = documents.shape[1] + 1
    flat = (documents + np.arange(len(documents))[:, None] * width)[documents > 0]
    return int((np.bincount(flat) ** 2).sum())


def split_batch(arrays: Arrays, size: int) -> list[Arrays]:
    """Return parts of `size` sequences each; their totals stay those of the whole batch."""
    sequences = len(arrays["input_ids"])
    return [
        {
            name: array[start : start + size] if array.ndim else array
            for name, array in arrays.items()
        }
        for start in range(0, sequences, size)
    ]


def prefetch(
    batches: Iterator[Arrays], depth: int = PREFETCH_DEPTH
) -> Generator[Arrays, None, None]:
    """Yield the same batches, made in a thread up to `depth` before they are needed."""
    ready: queue.Queue[Arrays | BaseException] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: Arrays | BaseException) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def fill_queue() -> None:
        try:
            for batch in batches:
                put(batch)
                if stopped.is_set():
                    return
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=fill_queue, name="batches", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()
