"""Compare a form of a scorer with fp32 on held-out reviews: whose labels change, and the speed."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from beam_jobs.job.errors import UserError
from model.device import open_device
from model.finetuning.features.batches import collate_features, cut_prediction_batches
from model.finetuning.features.examples import Sampling, load_examples
from model.finetuning.features.featurizer import Feature
from model.finetuning.network.encoders import Head, load_tokenizer
from model.finetuning.tasks import find_task
from model.scoring.forms import Form

REVIEWS = 500
"""Held-out reviews that a form is compared on."""
BATCH_TOKENS = 2_048
"""Of a batch at the longest texts, as in the scoring job."""


@dataclass(frozen=True)
class Agreement:
    """How a form differs from fp32 on the same reviews, one thread each."""

    form: Form
    reviews: int
    changed_labels: int
    largest_difference: float
    """Of a probability."""
    reviews_per_cpu_second: float
    fp32_reviews_per_cpu_second: float

    @property
    def changed_share(self) -> float:
        return self.changed_labels / self.reviews

    def describe(self) -> dict[str, Any]:
        """Return what scorer.json says of it."""
        return asdict(self)


def measure_agreement(
    fp32: nn.Module, module: nn.Module, form: Form, model: Path, head: Head, data: Path
) -> Agreement:
    """Compare `module`, the classifier of the folder `model` in the form, with fp32 on dev reviews,
    on one thread.
    """
    open_device("cpu", "fp32")  # its settings of products and memory are those of the scoring job
    features = load_dev_features(model, head, data)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        expected, fp32_speed = score_features(fp32, features, head.max_length)
        found, speed = score_features(module, features, head.max_length)
    finally:
        torch.set_num_threads(threads)
    return Agreement(
        form=form,
        reviews=len(features),
        changed_labels=int((expected.argmax(1) != found.argmax(1)).sum()),
        largest_difference=round(float(np.abs(expected - found).max()), 6),
        reviews_per_cpu_second=round(speed, 1),
        fp32_reviews_per_cpu_second=round(fp32_speed, 1),
    )


def load_dev_features(model: Path, head: Head, data: Path) -> list[Feature]:
    """Return features of dev reviews of the task that the folder `model` was fine-tuned on."""
    task = find_task(head.task, data, head.labels)
    examples = load_examples(task, data, "dev", Sampling(REVIEWS))
    if not examples:
        raise UserError(f"--data {data}: no dev reviews of {head.task} there")
    return head.make_featurizer(load_tokenizer(str(model)))(examples)


@torch.inference_mode()
def score_features(
    network: nn.Module, features: Sequence[Feature], longest: int
) -> tuple[np.ndarray, float]:
    """Return probabilities [reviews, classes], and reviews per CPU second."""
    rows: list[np.ndarray] = [np.empty(0)] * len(features)
    started = time.process_time()
    for members in cut_prediction_batches(features, max(1, BATCH_TOKENS // longest)):
        inputs, _ = collate_features([features[i] for i in members], "classification")
        found = network(inputs["input_ids"], inputs["attention_mask"]).numpy()
        for member, row in zip(members, found, strict=True):
            rows[member] = row
    return np.stack(rows), len(rows) / max(time.process_time() - started, 1e-9)
