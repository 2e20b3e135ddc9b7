"""Makes pairs for next-sentence prediction (Devlin et al. 2019): a document is cut at a sentence
start, and half of the second parts are exchanged with other documents of the batch.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amazon_electra.model.pretraining.input.sequences import Rows

TOKENS_PER_SLOT = 8  # of a row for each pair slot: a document of two sentences is seldom shorter


def make_pairs(rng: np.random.Generator, rows: Rows, cls: int, sep: int) -> dict[str, NDArray[Any]]:
    """Cut documents, exchange second halves and lay the rows out again. Return `input_ids`,
    `documents` (0 is padding), `positions`, `types`, all [sequences, length]; and `pair_places` of
    each [CLS], `pair_not_next`, `pair_weights`, [sequences, length // 8].
    """
    sequences, length = rows.input_ids.shape
    slots = max(1, length // TOKENS_PER_SLOT)
    ids, documents, positions, types = np.zeros((4, sequences, length), dtype=np.int64)
    places, not_next = np.zeros((2, sequences, slots), dtype=np.int64)
    weights = np.zeros((sequences, slots), dtype=np.float32)
    cut = [_cut_documents(rng, rows, i) for i in range(sequences)]
    seconds = [second for row in cut for _, second in row if second]
    for i, row in enumerate(cut):
        slot = start = 0
        for number, (first, own) in enumerate(row, start=1):
            exchanged = bool(own) and len(seconds) > 1 and rng.random() < 0.5
            second = _draw_other_segment(rng, seconds, own) if exchanged else own
            specials = 3 if second else 2
            room = length - start - specials
            if room < specials:
                continue
            if second:
                first = first[: max(1, room - len(second))]
                second = second[: room - len(first)]
            tokens = [cls, *first[:room], sep] + ([*second, sep] if second else [])
            end = start + len(tokens)
            ids[i, start:end] = tokens
            documents[i, start:end] = number
            positions[i, start:end] = np.arange(len(tokens))
            if second:
                types[i, end - len(second) - 1 : end] = 1
            if own and slot < slots:
                places[i, slot], not_next[i, slot], weights[i, slot] = start, exchanged, 1
                slot += 1
            start = end
    laid_out = {"input_ids": ids, "documents": documents, "positions": positions, "types": types}
    pairs = {"pair_places": places, "pair_not_next": not_next, "pair_weights": weights}
    return laid_out | pairs


def _cut_documents(
    rng: np.random.Generator, rows: Rows, i: int
) -> list[tuple[list[int], list[int]]]:
    """Return two segments of ids of each document, cut at a sentence; the second may be empty."""
    edges = [*np.flatnonzero(rows.document_starts[i]).tolist(), int(rows.lengths[i])]
    sentences = np.flatnonzero(rows.sentence_starts[i])
    documents = []
    for start, end in pairwise(edges):
        ids = rows.input_ids[i, start + 1 : end - 1].tolist()
        starts = sentences[(sentences > start + 1) & (sentences < end - 1)] - (start + 1)
        at = int(starts[int(rng.integers(len(starts)))]) if len(starts) else len(ids)
        documents.append((ids[:at], ids[at:]))
    return documents


def _draw_other_segment(
    rng: np.random.Generator, seconds: list[list[int]], own: list[int]
) -> list[int]:
    """Draw the second part of another document, cut to the own one's length at most."""
    while True:
        other = seconds[int(rng.integers(len(seconds)))]
        if other is not own:
            return other[: max(len(own), 1)]
