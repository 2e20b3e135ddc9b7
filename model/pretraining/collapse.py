"""Measures whether the states of the encoder have collapsed into one direction.

At a small budget ELECTRA's discriminator may become a constant: then the effective rank of its
token states falls (tiny, 2 M tokens of real reviews: from 75 to 2.2) and their mean cosine rises
(from 0.43 to 0.94). A longer run leaves that state; one that starts from a masked language model
which has learned more than word frequencies was not in it at any validation: docs/results.md, "What
gets ELECTRA off the plateau".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

CONSTANT_AUC = 0.55  # a discriminator below tells replaced tokens hardly better than by chance


class StateSpread:
    """Sums over the states of real tokens from which their spread is computed."""

    def __init__(self) -> None:
        self._tokens = 0
        self._products: NDArray[Any] = np.zeros(())  # [hidden, hidden]
        self._directions: NDArray[Any] = np.zeros(())  # [hidden]

    @classmethod
    def join(cls, parts: Sequence["StateSpread"]) -> "StateSpread":
        """Return the sums of all parts together."""
        joined = cls()
        joined._tokens = sum(part._tokens for part in parts)
        joined._products = sum((part._products for part in parts), joined._products)
        joined._directions = sum((part._directions for part in parts), joined._directions)
        return joined

    def add(self, states: Tensor, real: Tensor) -> None:
        """Add the states [sequences, length, hidden] of the real tokens [sequences, length]."""
        tokens = states.float()[real.bool()]
        self._tokens += len(tokens)
        self._products = self._products + (tokens.T @ tokens).double().cpu().numpy()
        directions = functional.normalize(tokens, dim=1).sum(dim=0, dtype=torch.float64)
        self._directions = self._directions + directions.cpu().numpy()

    def compute_measures(self, prefix: str) -> dict[str, float]:
        """Return the effective rank (Roy & Vetterli 2007) and the mean cosine of two tokens."""
        singular = np.sqrt(np.linalg.eigvalsh(self._products).clip(min=0.0))
        shares = singular[singular > 0] / singular.sum()
        pairs = self._tokens * (self._tokens - 1)
        return {
            f"{prefix}_effective_rank": float(np.exp(-(shares * np.log(shares)).sum())),
            f"{prefix}_mean_cosine": float(
                ((self._directions**2).sum() - self._tokens) / max(pairs, 1)
            ),
        }


def describe_collapse(step: int, measures: Mapping[str, float]) -> str | None:
    """Return a warning if the discriminator is a constant by these measures of a validation; none
    if its AUC is NaN: where no token was replaced, nothing is known of it.
    """
    auc = measures.get("validation_discriminator_auc", 1.0)
    if not auc < CONSTANT_AUC:
        return None
    return (
        f"step {step}: the discriminator is a constant so far (AUC {auc:.3f}, effective rank "
        f"{measures['validation_discriminator_effective_rank']:.1f}, mean cosine "
        f"{measures['validation_discriminator_mean_cosine']:.2f}): if that lasts, train longer, or "
        "train with --set objective=mlm and --start-from its encoder (docs/results.md)"
    )
