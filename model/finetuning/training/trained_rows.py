"""Train only the rows of the token embedding whose tokens occur in the training examples.

Without weight decay AdamW leaves a row as it is that never had a gradient: its moments stay 0. All
other rows need neither a gradient nor moments, nor a place in the norm that is clipped: with a
vocabulary of 30,522 and a thousand reviews that is most of the table. The weights are those that
training the whole table gives, but for the order in which the norm's squares are added up.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.finetuning.features.featurizer import Feature
from model.finetuning.network.heads import MeanPooledClassifier

LARGEST_SHARE = 0.5
"""Of the table's rows: with more of them it is trained whole."""


class TrainedRows:
    """Stands in the place of an embedding's `forward`; `parameter` is what learns, [rows, width].

    While the network predicts it reads the whole table, into which `write` puts what was learnt.
    """

    def __init__(self, embedding: nn.Embedding, used: np.ndarray) -> None:
        self._embedding, self._used = embedding, torch.from_numpy(np.flatnonzero(used))
        self._rows = torch.full((len(used),), -1)
        self._rows[self._used] = torch.arange(len(self._used))
        padding = embedding.padding_idx
        self._padding = None if padding is None else int(self._rows[padding])
        self.table = embedding.weight
        self.parameter = nn.Parameter(self.table.detach()[self._used])

    def __call__(self, ids: Tensor) -> Tensor:
        """Map token ids of any shape to their vectors, [..., width]."""
        if not self._embedding.training:
            return functional.embedding(ids, self.table)
        return functional.embedding(self._rows[ids], self.parameter, self._padding)

    @torch.no_grad()
    def read(self) -> None:
        """Take the rows from the table, after a checkpoint was loaded into it."""
        self.parameter.copy_(self.table[self._used])

    @torch.no_grad()
    def write(self) -> None:
        """Put the rows into the table."""
        self.table[self._used] = self.parameter


def train_used_rows(
    model: nn.Module, features: Sequence[Feature], pad_id: int
) -> TrainedRows | None:
    """Let the network learn the token vectors of the features alone; None where most of them occur
    or the embedding is none that this can stand for.
    """
    embedding = _find_embedding(model)
    if embedding is None:
        return None
    used = np.zeros(embedding.num_embeddings, dtype=bool)
    used[[pad_id] if embedding.padding_idx is None else [pad_id, embedding.padding_idx]] = True
    for feature in features:
        for row in feature.ids:
            used[row] = True
    if used.mean() > LARGEST_SHARE:
        return None
    rows = TrainedRows(embedding, used)
    embedding.forward = rows  # type: ignore[method-assign, assignment]
    return rows


def _find_embedding(model: nn.Module) -> nn.Embedding | None:
    """Return the token embedding if it is a plain one whose weights nothing else reads."""
    inner: Any = model.encoder if isinstance(model, MeanPooledClassifier) else model
    try:
        found = inner.get_input_embeddings()
    except NotImplementedError:
        return None
    if type(found) is not nn.Embedding or found.max_norm or found.scale_grad_by_freq:
        return None
    uses = sum(p is found.weight for _, p in model.named_parameters(remove_duplicate=False))
    return found if uses == 1 and found.weight.requires_grad else None
