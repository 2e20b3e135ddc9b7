"""Cuts documents into segments A and B, so that the second row of the type embeddings is trained.

google-research/electra, build_pretraining_dataset.py, fills half of an example and then begins B;
one example in ten is A alone. Here a document of two or more sentences is cut at one of its
sentence starts; nothing but the types changes, so that rows keep their length.
"""

import numpy as np
from numpy.typing import NDArray

from model.pretraining.input.sequences import Rows


def draw_types(
    rng: np.random.Generator,
    rows: Rows,
    documents: NDArray[np.int64],
    positions: NDArray[np.int64],
    probability: float,
) -> NDArray[np.int64]:
    """Return 1 for the tokens of segments B, 0 elsewhere, [sequences, length].

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
