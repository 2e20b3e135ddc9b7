"""Compute the loss of fine-tuning for each shape of task."""

import numpy as np
import torch
import torch.nn.functional as F

from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.finetuning.features import IGNORED


def compute_classification_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    config: FinetuningSettings,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mean loss of logits [..., classes] against labels [...], IGNORED where there is
    none.

    Focal loss is α · (1 − p)^γ · −log p of the true class, α that class's weight (Lin et al. 2017,
    eq. 5); with γ 0 and no α it is cross-entropy.
    """
    logits, labels = logits.float().flatten(0, -2), labels.flatten()
    each = F.cross_entropy(logits, labels, reduction="none", ignore_index=IGNORED)
    known = (labels != IGNORED).float()
    weight = known if weights is None else known * weights[labels.clamp(min=0)]
    if config.loss == "focal":
        each = (1.0 - torch.exp(-each)) ** config.focal_gamma * each
        if alphas := config.focal_alpha:
            if len(alphas) == 1:  # of the second of two classes, the first has the rest
                alphas = (1.0 - alphas[0], alphas[0])
            each = torch.tensor(alphas, device=each.device)[labels.clamp(min=0)] * each
    return (each * weight).sum() / weight.sum().clamp(min=1e-12)


def compute_span_loss(
    start_logits: torch.Tensor, end_logits: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """Return the mean loss of start and end, tokens in [batch, 2]; 0 ([CLS]) for no answer."""
    start = F.cross_entropy(start_logits.float(), positions[:, 0])
    return (start + F.cross_entropy(end_logits.float(), positions[:, 1])) / 2


def balance_class_weights(labels: np.ndarray, classes: int) -> torch.Tensor:
    """Return weights inverse to the classes' frequencies, 1 on average; unseen ones get 0."""
    counts = np.bincount(labels[labels >= 0], minlength=classes).astype(np.float64)
    weights = np.divide(counts.sum(), len(counts) * counts, out=np.zeros(classes), where=counts > 0)
    return torch.tensor(weights, dtype=torch.float32)
