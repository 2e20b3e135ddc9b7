"""Keeps the loaded trunk beside the one that learns.

What is written is an average of both (WiSE-FT, Wortsman et al. 2022, arXiv 2109.01903), or the
loaded one where a probe finds that training did harm.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from model.device import Device
from model.pretraining.adaptation.config import AdaptationConfig
from model.pretraining.adaptation.probe import Judged, Probe
from model.pretraining.network.masked_prediction import PretrainingModel

WORSE = 2.0
"""Standard errors by which the trained encoder must be worse than the loaded one for that one to be
written.
"""


class Anchor:
    """A copy of a model's trunk at the moment it is made."""

    def __init__(self, model: PretrainingModel) -> None:
        self._trained = [*model.embeddings.parameters(), *model.trunk.parameters()]
        self._loaded = [parameter.detach().clone() for parameter in self._trained]

    @torch.no_grad()
    def average(self, share: float) -> None:
        """Replace the trunk's weights by `share` of the loaded ones and the rest of their own."""
        for trained, loaded in zip(self._trained, self._loaded, strict=True):
            trained.lerp_(loaded, share)

    @contextmanager
    def averaged(self, share: float) -> Iterator[None]:
        """Let the trunk be averaged inside the block, and bit for bit what it was after it."""
        own = [parameter.detach().clone() for parameter in self._trained]
        self.average(share)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, before in zip(self._trained, own, strict=True):
                    parameter.copy_(before)

    def settle(
        self,
        model: PretrainingModel,
        device: Device,
        adaptation: AdaptationConfig,
        probe: Probe | None,
        step: int,
    ) -> dict[str, Any]:
        """Put the weights that are to be written after `step` into the model: the average, or the
        loaded trunk where the probe finds the average worse. Return what result.json says of it.
        """
        self.average(adaptation.origin_average)
        if probe is None or not device.is_needed:
            return {}
        trained = probe(model, device)
        with self.averaged(1.0):
            loaded = probe(model, device)
        is_refused = is_worse(trained, loaded) and not adaptation.write_last
        if is_refused:
            self.average(1.0)
        if device.is_rank0:
            print(
                f"probe on {len(trained):,} dev reviews: the loaded encoder {loaded.mean():.1%}, "
                f"the trained one {trained.mean():.1%}"
                + (
                    f", worse by more than {WORSE:g} standard errors: the loaded weights are "
                    "written as they were. Try a lower learning_rate or trunk_learning_rate, or "
                    "more text"
                    if is_refused
                    else ", which is written"
                ),
                file=sys.stderr,
            )
        return {
            "probe_origin_accuracy": float(loaded.mean()),
            "probe_last_accuracy": float(trained.mean()),
            "written_step": 0 if is_refused else step,
        }


def is_worse(trained: Judged, loaded: Judged) -> bool:
    """Return whether an encoder is worse than the loaded one by more than chance explains.

    Both are judged on the same reviews, so that the error is that of their difference: where they
    agree on most reviews it is a fraction of that of either accuracy.
    """
    differences = loaded.astype(np.float64) - trained
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    return float(differences.mean()) > WORSE * error
