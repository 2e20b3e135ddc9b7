"""Losses against their formulas."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.finetuning.distillation import compute_soft_loss, pair_layers
from amazon_electra.model.finetuning.training import (
    IGNORED,
    balance_class_weights,
    compute_classification_loss,
)

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3], [-1.0, 3.0, 0.0]])
LABELS = torch.tensor([0, 2, 0])


def test_focal_loss_is_lins_formula():
    """Equation 5, a weight for each class."""
    settings = FinetuningSettings(loss="focal", focal_alpha=(0.2, 0.5, 0.3), focal_gamma=2.0)
    p = LOGITS.softmax(1)[range(3), LABELS]
    alpha = torch.tensor([0.2, 0.3, 0.2])
    expected = (-alpha * (1 - p) ** 2 * p.log()).mean()
    assert compute_classification_loss(LOGITS, LABELS, settings) == pytest.approx(float(expected))


def test_one_alpha_is_that_of_the_second_class():
    settings = FinetuningSettings(loss="focal", focal_alpha=(0.25,), focal_gamma=0.0)
    logits, labels = LOGITS[:, :2], torch.tensor([0, 1, 1])
    each = F.cross_entropy(logits, labels, reduction="none")
    expected = (torch.tensor([0.75, 0.25, 0.25]) * each).mean()
    assert compute_classification_loss(logits, labels, settings) == pytest.approx(float(expected))


def test_class_weights_are_torchs():
    weights = balance_class_weights(np.array([0, 0, 0, 1, 2, 2]), 3)
    assert weights.tolist() == pytest.approx([6 / 9, 2.0, 1.0])
    expected = F.cross_entropy(LOGITS, LABELS, weight=weights)
    assert compute_classification_loss(
        LOGITS, LABELS, FinetuningSettings(), weights
    ) == pytest.approx(float(expected))


def test_ignored_labels_count_for_nothing():
    labels = torch.tensor([0, IGNORED, 0])
    expected = F.cross_entropy(LOGITS[[0, 2]], labels[[0, 2]])
    assert compute_classification_loss(LOGITS, labels, FinetuningSettings()) == pytest.approx(
        float(expected)
    )


def test_soft_targets_keep_the_size_of_gradients():
    """At a high temperature T² · KL tends to the squared difference of centred logits / (2 ·
    classes) (Hinton).
    """
    student, teacher = LOGITS, LOGITS.flip(0)
    settings = FinetuningSettings(temperature=500.0)
    difference = student - teacher
    centred = difference - difference.mean(1, keepdim=True)
    expected = float((centred**2).sum(1).mean() / (2 * 3))
    found = float(compute_soft_loss(student, teacher, settings, "classification"))
    assert found == pytest.approx(expected, rel=0.02)
    same = float(compute_soft_loss(student, student, settings, "classification"))
    assert same == pytest.approx(0.0, abs=1e-5)


def test_layers_are_paired_to_the_top():
    assert pair_layers(3, 6) == [(0, 1), (1, 3), (2, 5)]
    assert pair_layers(3, 6, embeddings=True) == [(0, 0), (1, 2), (2, 4), (3, 6)]
    assert pair_layers(6, 12) == [(i, 2 * i + 1) for i in range(6)]
