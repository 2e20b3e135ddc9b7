"""Makes pairs of segments for next-sentence prediction from the packed documents.

Devlin et al. 2019: two segments A and B, half of the time B really follows A. Here a document of
two or more sentences is cut at one of its sentence starts; for half of them the second part is
exchanged for that of another document of the batch. Reviews of one sentence stay as they are and
take no part in the loss. The [SEP] between the segments is one token more per document: what then
no longer fits is cut off the row's last document.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from model.pretraining.input.sequences import Rows

TOKENS_PER_SLOT = 8  # of a row for each pair slot: a document of two sentences is seldom shorter


@dataclass(frozen=True)
class Document:
    """A document cut in two."""

    first: list[int]  # ids of segment A, without special tokens
    second: list[int]  # ids of segment B; empty: not a pair


@dataclass(frozen=True)
class Pairs:
    """All [sequences, length], but the last three: [sequences, length // 8]."""

    input_ids: NDArray[np.int64]
    documents: NDArray[np.int64]  # 0 is padding
    positions: NDArray[np.int64]
    types: NDArray[np.int64]  # 0 in segment A, 1 in segment B
    places: NDArray[np.int64]  # of each pair's [CLS]
    not_next: NDArray[np.int64]  # 1 where B does not follow A
    weights: NDArray[np.float32]  # 1 where there is a pair


def make_pairs(rng: np.random.Generator, rows: Rows, cls: int, sep: int) -> Pairs:
    """Cut the documents of a batch, exchange second halves and lay the rows out again."""
    cut = [
        [_cut_document(rng, ids, starts) for ids, starts in _list_documents(rows, i)]
        for i in range(len(rows.lengths))
    ]
    seconds = [document.second for row in cut for document in row if document.second]
    length = rows.input_ids.shape[1]
    pairs = _allocate_pairs(len(cut), length)
    for i, row in enumerate(cut):
        slot = 0
        start = 0
        for number, document in enumerate(row, start=1):
            exchanged = bool(document.second) and len(seconds) > 1 and rng.random() < 0.5
            second = (
                _draw_other_segment(rng, seconds, document.second) if exchanged else document.second
            )
            end = _write_document(pairs, i, start, number, document.first, second, cls, sep)
            if document.second and end > start and slot < pairs.places.shape[1]:
                pairs.places[i, slot], pairs.not_next[i, slot], pairs.weights[i, slot] = (
                    start,
                    exchanged,
                    1,
                )
                slot += 1
            start = end
    return pairs


def _allocate_pairs(sequences: int, length: int) -> Pairs:
    slots = max(1, length // TOKENS_PER_SLOT)
    ids, documents, positions, types = (
        np.zeros((sequences, length), dtype=np.int64) for _ in range(4)
    )
    places, not_next = (np.zeros((sequences, slots), dtype=np.int64) for _ in range(2))
    return Pairs(
        ids,
        documents,
        positions,
        types,
        places,
        not_next,
        weights=np.zeros((sequences, slots), dtype=np.float32),
    )


def _list_documents(rows: Rows, i: int) -> list[tuple[NDArray[np.uint32], list[int]]]:
    """Return each document of a row: ids without special tokens, starts of later sentences."""
    edges = [*np.flatnonzero(rows.document_starts[i]).tolist(), int(rows.lengths[i])]
    sentences = np.flatnonzero(rows.sentence_starts[i])
    documents = []
    for start, end in pairwise(edges):
        inside = sentences[(sentences > start + 1) & (sentences < end - 1)] - (start + 1)
        documents.append((rows.input_ids[i, start + 1 : end - 1], inside.tolist()))
    return documents


def _cut_document(rng: np.random.Generator, ids: NDArray[np.uint32], starts: list[int]) -> Document:
    if not starts:
        return Document(ids.tolist(), [])
    at = starts[int(rng.integers(len(starts)))]
    return Document(ids[:at].tolist(), ids[at:].tolist())


def _draw_other_segment(
    rng: np.random.Generator, seconds: list[list[int]], own: list[int]
) -> list[int]:
    """Draw the second part of another document, cut to the own one's length at most."""
    while True:
        other = seconds[int(rng.integers(len(seconds)))]
        if other is not own:
            return other[: max(len(own), 1)]


def _write_document(
    pairs: Pairs,
    row: int,
    start: int,
    number: int,
    first: list[int],
    second: list[int],
    cls: int,
    sep: int,
) -> int:
    """Write one document into its row from `start` on; return where the next one starts."""
    length = pairs.input_ids.shape[1]
    specials = 3 if second else 2
    room = length - start - specials
    if room < specials:
        return start
    if second:
        first = first[: max(1, room - len(second))]
        second = second[: room - len(first)]
    ids = [cls, *first[:room], sep] + ([*second, sep] if second else [])
    end = start + len(ids)
    pairs.input_ids[row, start:end] = ids
    pairs.documents[row, start:end] = number
    pairs.positions[row, start:end] = np.arange(len(ids))
    if second:
        pairs.types[row, end - len(second) - 1 : end] = 1
    return end
