"""Prepares the batch of each step, in a thread while the step before runs. All that is random comes
from seed and step for the whole batch over all processes; the device masks by a key a sequence.
"""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from amazon_electra.model.pretraining.input import masking
from amazon_electra.model.pretraining.input.next_sentence import make_pairs
from amazon_electra.model.pretraining.input.sequences import Rows, Stream

Arrays = dict[str, NDArray[np.generic]]
T = TypeVar("T", NDArray[Any], Tensor)
PREFETCH_DEPTH = 4  # batches
MASKING, SEGMENTS = 1, 3  # keep their random numbers apart from those of the stream's order


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the special tokens."""

    cls: int
    sep: int
    mask: int


@dataclass(frozen=True)
class Batches:
    """Makes batches of `size` sequences; each rank gets its contiguous share of the rows."""

    stream: Stream
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
        """Return this process's share of a batch; arrays are [sequences, length] unless noted."""
        rng = np.random.default_rng([self.seed, MASKING, step])
        if self.pairs:
            arrays = make_pairs(rng, rows, self.special.cls, self.special.sep)
        else:
            arrays = self._lay_out(rows, step)
        input_ids, documents = arrays["input_ids"], arrays["documents"]
        counts = masking.draw_counts(
            rng, self._find_maskable(input_ids, documents).sum(axis=1), self.fraction
        )
        counts = np.minimum(counts, masking.count_slots(input_ids.shape[1], self.fraction))
        arrays["masked_counts"] = counts  # [sequences]
        arrays["masking_keys"] = rng.integers(0, 2**31, size=len(counts))  # [sequences]
        share = len(input_ids) // self.world_size
        mine = slice(self.rank * share, (self.rank + 1) * share)
        shares = {name: array[mine] for name, array in arrays.items()}
        totals = {  # over all processes
            "masked_total": max(1, counts.sum()),
            "real_total": (documents > 0).sum(),
            "squared_total": sum_squared_lengths(documents),
        }
        if self.pairs:
            totals["pairs_total"] = max(1.0, arrays["pair_weights"].sum())
        return shares | {n: np.asarray(total, dtype=np.float32) for n, total in totals.items()}

    def mask(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return batch | self.draw_masks(batch)

    def draw_masks(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the masks alone, as `masking.mask_tokens` has them."""
        maskable = self._find_maskable(batch["input_ids"], batch["documents"])
        return masking.mask_tokens(
            batch["input_ids"],
            maskable,
            batch["masked_counts"],
            batch["masking_keys"],
            self.fraction,
            self.replacement,
        )

    def _find_maskable(self, input_ids: T, documents: T) -> T:
        is_word: T = (input_ids != self.special.cls) & (input_ids != self.special.sep)
        return is_word & (documents > 0)

    def _lay_out(self, rows: Rows, step: int) -> dict[str, NDArray[Any]]:
        documents = number_documents(rows)  # 1, 2 … in each sequence; 0 is padding
        positions, ids = number_positions(rows.document_starts), rows.input_ids.astype(np.int64)
        arrays = {"input_ids": ids, "documents": documents, "positions": positions}
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
    row of the type embeddings is trained. google-research/electra fills half of an example and then
    begins B; here a document is cut with `probability` at any of its later sentence starts alike.
    """
    sequences, length = documents.shape
    numbers = documents + np.arange(sequences)[:, None] * (length + 1)
    places = np.flatnonzero(rows.sentence_starts & (positions > 1) & (documents > 0))
    first = np.flatnonzero(np.diff(numbers.ravel()[places], prepend=-1))  # of each document's
    cuts = places[first + rng.integers(0, np.diff(first, append=len(places)))]
    cuts = cuts[rng.random(len(cuts)) < probability]
    second_starts = np.full(sequences * (length + 1), length)
    second_starts[numbers.ravel()[cuts]] = cuts % length
    in_second = np.arange(length) >= second_starts[numbers]
    return (in_second & (documents > 0)).astype(np.int64)


def sum_squared_lengths(documents: NDArray[np.int64]) -> int:
    """Return the sum of length² over the documents, from their numbers [sequences, length]."""
    _, lengths = find_documents(documents)
    return int((lengths**2).sum())


def find_documents(documents: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return start and length of each document of numbers [sequences, length]; 0 is padding."""
    flat = documents + np.arange(len(documents))[:, None] * (documents.shape[1] + 1)
    starts = np.flatnonzero(np.diff(flat.ravel(), prepend=-1))
    lengths = np.diff(starts, append=documents.size)
    is_text = documents.ravel()[starts] > 0
    return starts[is_text], lengths[is_text]


def split_batch(arrays: Arrays, size: int) -> list[Arrays]:
    """Return parts of `size` sequences each; their totals stay those of the whole batch."""
    parts = [slice(start, start + size) for start in range(0, len(arrays["input_ids"]), size)]
    return [
        {n: array[part] if array.ndim else array for n, array in arrays.items()} for part in parts
    ]


def prefetch(batches: Iterator[Arrays]) -> Generator[Arrays, None, None]:
    """Yield the same batches, which never end, made in a thread up to PREFETCH_DEPTH ahead."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as maker:
        ready = deque(maker.submit(next, batches) for _ in range(PREFETCH_DEPTH))
        try:
            while True:
                ready.append(maker.submit(next, batches))
                yield ready.popleft().result()
        finally:
            maker.shutdown(cancel_futures=True)
