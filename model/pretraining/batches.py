"""Rows of the stream → what one optimizer step is fed, prepared in a thread while the step before runs.

Everything random here comes from the seed and the step, for the whole batch over all processes; each process then takes
its own rows. So one process, two, or a resumed run see the same masks.
"""

import queue
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.pretraining import masking
from model.pretraining.mixture import Mixture
from model.pretraining.next_sentence import pair
from model.pretraining.sequences import Rows, Stream

Arrays = dict[str, NDArray[np.generic]]
AHEAD = 4  # batches prepared before they are asked for
MASKING = 1  # tells the random numbers of masking from those of the stream's order


@dataclass(frozen=True)
class SpecialTokens:
    cls: int
    sep: int
    mask: int


@dataclass(frozen=True)
class Batches:
    """How batches are made; `rank` takes every row of its contiguous share of the `size` sequences."""

    stream: Stream | Mixture
    size: int
    special: SpecialTokens
    fraction: float
    replacement: masking.Replacement
    seed: int
    rank: int = 0
    ranks: int = 1
    pairs: bool = False  # next-sentence pairs are made of the documents

    def steps(self, first: int) -> Iterator[Arrays]:
        """This process's batch of step `first` and of every one after it."""
        for step, rows in enumerate(self.stream.batches(first * self.size, self.size), start=first):
            yield self._share(self.prepare(rows, step))

    def prepare(self, rows: Rows, step: int) -> Arrays:
        """The whole batch of one step, [sequences, length] each unless said otherwise."""
        rng = np.random.default_rng([self.seed, MASKING, step])
        arrays = self._pairs(rng, rows) if self.pairs else _as_packed(rows)
        input_ids, documents = arrays["input_ids"], arrays["documents"]
        maskable = (documents > 0) & (input_ids != self.special.cls) & (input_ids != self.special.sep)
        masked = masking.mask(rng, input_ids, maskable, self.fraction, self.replacement)
        return arrays | {
            "masked_ids": masked.input_ids,
            "masked_positions": masked.positions,  # [sequences, slots]
            "masked_weights": masked.weights,  # [sequences, slots]
            "keys": masked.keys,  # [sequences, slots]
            "masked_total": np.asarray(max(1.0, masked.weights.sum()), dtype=np.float32),  # over all processes
            "real_total": np.asarray((documents > 0).sum(), dtype=np.float32),  # over all processes
        }

    def _pairs(self, rng: np.random.Generator, rows: Rows) -> dict[str, NDArray[Any]]:
        pairs = pair(rng, rows, self.special.cls, self.special.sep)
        return {
            "input_ids": pairs.input_ids,
            "documents": pairs.documents,
            "positions": pairs.positions,
            "types": pairs.types,
            "pair_places": pairs.places,  # [sequences, pair slots]
            "pair_not_next": pairs.not_next,  # [sequences, pair slots]
            "pair_weights": pairs.weights,  # [sequences, pair slots]
            "pairs_total": np.asarray(max(1.0, pairs.weights.sum()), dtype=np.float32),  # over all processes
        }

    def _share(self, arrays: Arrays) -> Arrays:
        share = self.size // self.ranks
        mine = slice(self.rank * share, (self.rank + 1) * share)
        return {name: array[mine] if array.ndim else array for name, array in arrays.items()}


def _as_packed(rows: Rows) -> dict[str, NDArray[Any]]:
    return {
        "input_ids": rows.input_ids.astype(np.int64),
        "documents": number_documents(rows),  # 1, 2 … in each sequence; 0 is padding
        "positions": number_positions(rows.document_starts),
    }


def number_documents(rows: Rows) -> NDArray[np.int64]:
    """1 for the tokens of a sequence's first document, 2 for the next …, 0 for padding."""
    numbers = np.cumsum(rows.document_starts, axis=1, dtype=np.int64)
    numbers[np.arange(numbers.shape[1]) >= rows.lengths[:, None]] = 0
    return numbers


def number_positions(document_starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Position of each token in its own document."""
    places = np.arange(document_starts.shape[1], dtype=np.int64)
    return places - np.maximum.accumulate(np.where(document_starts, places, 0), axis=1)


def split(arrays: Arrays, size: int) -> list[Arrays]:
    """Parts of `size` sequences each, to be accumulated; the totals stay those of the whole batch."""
    sequences = len(arrays["input_ids"])
    return [
        {name: array[start : start + size] if array.ndim else array for name, array in arrays.items()}
        for start in range(0, sequences, size)
    ]


def ahead(batches: Iterator[Arrays], depth: int = AHEAD) -> Generator[Arrays, None, None]:
    """The same batches, made in a thread up to `depth` before they are needed."""
    ready: queue.Queue[Arrays | BaseException] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: Arrays | BaseException) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for batch in batches:
                put(batch)
                if stopped.is_set():
                    return
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="batches", daemon=True)
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
