"""Keeps the loaded trunk beside the one that learns, so that it does not go far from it.

L2-SP (Li et al. 2018, arXiv 1802.01483) pulls the weights, DELTA (Li et al. 2019, arXiv 1901.09229)
the hidden states, WiSE-FT (Wortsman et al. 2022, arXiv 2109.01903) averages what comes out.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from model.pretraining.adaptation.config import AdaptationConfig
from model.pretraining.network.attention import Attention
from model.pretraining.network.masked_prediction import Batch, PretrainingModel


class Anchor:
    """A frozen copy of a model's trunk at the moment it is made."""

    def __init__(self, model: PretrainingModel) -> None:
        self._pairs: list[tuple[nn.Parameter, Tensor]] = []
        shared = {id(model.noise): model.noise}
        self.embeddings, self.trunk = (
            copy.deepcopy(part, shared).eval().requires_grad_(False)
            for part in (model.embeddings, model.trunk)
        )
        for part, frozen in ((model.embeddings, self.embeddings), (model.trunk, self.trunk)):
            self._pairs += zip(part.parameters(), frozen.parameters(), strict=True)
        self._places = {id(parameter): i for i, (parameter, _) in enumerate(self._pairs)}

    def pull(self, parameters: list[nn.Parameter], share: float) -> None:
        """Move those of the parameters that belong to the trunk this share of the way back."""
        places = [self._places[id(p)] for p in parameters if id(p) in self._places]
        if places:
            moving, resting = zip(*(self._pairs[i] for i in places), strict=True)
            with torch.no_grad():
                torch._foreach_lerp_(moving, resting, min(1.0, share))

    def pull_groups(self, groups: list[dict[str, Any]], adaptation: AdaptationConfig) -> None:
        """Pull what an optimizer's groups learn, each by `origin_pull` times its rate."""
        for group in groups if adaptation.origin_pull else []:
            self.pull(group["params"], adaptation.origin_pull * group["lr"])

    def average(self, share: float) -> None:
        """Replace the trunk's weights by `share` of the origin's and the rest of their own."""
        moving, resting = zip(*self._pairs, strict=True)
        with torch.no_grad():
            torch._foreach_lerp_(moving, resting, share)

    @contextmanager
    def averaged(self, share: float) -> Iterator[None]:
        """Let the trunk be averaged inside the block, and bit for bit what it was after it."""
        if not share:
            yield
            return
        own = [parameter.detach().clone() for parameter, _ in self._pairs]
        self.average(share)
        try:
            yield
        finally:
            with torch.no_grad():
                for (parameter, _), before in zip(self._pairs, own, strict=True):
                    parameter.copy_(before)


@dataclass(frozen=True)
class AnchorDistance:
    """The loss that keeps the trunk's last states near those of an anchor."""

    anchor: Anchor
    weight: float

    def measure(self, states: Tensor, ids: Tensor, batch: Batch, attention: Attention) -> Tensor:
        """Return the sum over real tokens of the squared distance of the states of these ids from
        the anchor's, over the squared length of the anchor's.
        """
        with torch.no_grad():
            embedded = self.anchor.embeddings(ids, batch["positions"], batch.get("types"))
            origin = self.anchor.trunk(embedded, attention).float()
        squares = (states.float() - origin).square().sum(dim=2) / origin.square().sum(dim=2)
        return (squares * (batch["documents"] > 0)).sum()
