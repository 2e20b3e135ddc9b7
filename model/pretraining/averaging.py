"""Averages the loaded trunk and the trained one (WiSE-FT, arXiv 2109.01903)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from amazon_electra.model.pretraining.network.masked_prediction import PretrainingModel


class LoadedTrunk:
    """A copy of a model's trunk as it was loaded, and its share in the weights that are written."""

    def __init__(self, model: PretrainingModel, share: float) -> None:
        trunk = model.list_trunk_names()
        self._share = share
        self._trained = [tensor for name, tensor in model.named_parameters() if name in trunk]
        self._loaded = [parameter.detach().clone() for parameter in self._trained]

    @torch.no_grad()
    def average(self) -> None:
        """Replace the trunk's weights by the average."""
        for trained, loaded in zip(self._trained, self._loaded, strict=True):
            trained.lerp_(loaded, self._share)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Let the trunk be averaged inside the block, and bit for bit what it was after it."""
        own = [parameter.detach().clone() for parameter in self._trained]
        self.average()
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, before in zip(self._trained, own, strict=True):
                    parameter.copy_(before)
