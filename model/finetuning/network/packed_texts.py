"""Lay the texts of a batch one behind the other, so that no product is computed for padding."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """Texts of one length that lie one behind the other, from the position `start` on."""

    start: int
    texts: int
    tokens: int

    @property
    def positions(self) -> slice:
        return slice(self.start, self.start + self.texts * self.tokens)

    def split(self, texts: int) -> list["Group"]:
        """Return groups of at most so many texts."""
        return [
            Group(self.start + first * self.tokens, min(texts, self.texts - first), self.tokens)
            for first in range(0, self.texts, texts)
        ]


class PackedTexts:
    """The order and the lengths of the texts of a padded batch, the shortest first.

    A mask [texts, tokens] says where tokens are; `groups` are the texts of like length.
    """

    def __init__(self, mask: Tensor) -> None:
        is_token = mask.bool()
        self._shape = is_token.shape
        lengths = is_token.sum(1)
        order = torch.argsort(lengths, stable=True)
        texts, columns = is_token[order].nonzero(as_tuple=True)
        self._places = order[texts] * self._shape[1] + columns
        self._ranks = torch.argsort(order)
        self.groups: list[Group] = []
        start = 0
        for tokens, count in zip(*lengths.unique(return_counts=True), strict=True):
            self.groups.append(Group(start, int(count), int(tokens)))
            start = self.groups[-1].positions.stop

    def pack(self, states: Tensor) -> Tensor:
        """Map [texts, tokens, hidden] to [positions, hidden]."""
        return states.flatten(0, 1).index_select(0, self._places)

    def unpack(self, rows: Tensor) -> Tensor:
        """Map [positions, hidden] to [texts, tokens, hidden], with zeros where there is no token."""
        states = rows.new_zeros(self._shape.numel(), rows.shape[1])
        return states.index_copy(0, self._places, rows).unflatten(0, self._shape)

    def restore_order(self, firsts: Tensor) -> Tensor:
        """Map one state of each text [texts, hidden], the shortest first, to the batch's order."""
        return firsts.index_select(0, self._ranks)
