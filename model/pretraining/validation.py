"""Measures the networks on held-out text, with fixed masked positions and random keys."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from amazon_electra.model.device import Device
from amazon_electra.model.pretraining.input.batches import Batches
from amazon_electra.model.pretraining.network.masked_prediction import PretrainingModel, Scores

VALIDATIONS = 10
"""Validations of a run that does not say how often."""
VALIDATED_SHARE = 0.03
"""Validated sequences for each trained on; one costs up to three quarters of a step's."""
CONSTANT_AUC = 0.55  # a discriminator below finds replaced tokens hardly better than by chance


Measured = dict[int, tuple[dict[str, float], Scores | None]]
"""Sums of each batch by its number, and the scores where there are some."""


@dataclass(frozen=True)
class Validation:
    """Measures on the first sequences of the dev shards, always the same ones."""

    batches: Batches
    count: int  # batches

    def __call__(
        self, model: PretrainingModel, device: Device, stopping: Callable[[], bool] = lambda: False
    ) -> dict[str, float]:
        """Return the measures, the same in every process; {} if `stopping` turns true."""
        rank, processes = (0, 1) if device.moves_together else (device.rank, device.world_size)
        measured: Measured = {}
        batches = self.batches.iterate_steps(rank, processes)
        model.eval()
        with torch.no_grad():
            for step in range(rank, self.count, processes):
                if stopping():
                    break
                batch = self.batches.mask(device.put_whole(next(batches)))
                of_batch = {name: float(value.item()) for name, value in model(batch).sums.items()}
                measured[step] = of_batch, model.score_replacements(batch)
        model.train()
        for part in [] if device.moves_together else device.gather_parts(measured):
            measured |= part
        if len(measured) < self.count:
            return {}
        sums: dict[str, float] = {}
        for step in range(self.count):
            for name, value in measured[step][0].items():
                sums[name] = sums.get(name, 0.0) + value
        numbers = {f"validation_{name}": value for name, value in model.compute_means(sums).items()}
        if scores := [one for step in range(self.count) if (one := measured[step][1])]:
            numbers["validation_discriminator_auc"] = compute_auc(scores)
        return numbers


def describe_collapse(step: int, measures: Mapping[str, float]) -> str | None:
    """Return a warning if the discriminator is a constant; none if its AUC is NaN."""
    auc = measures.get("validation_discriminator_auc", 1.0)
    if not auc < CONSTANT_AUC:
        return None
    return (
        f"step {step}: the discriminator is a constant so far (AUC {auc:.3f}): if that lasts, "
        "train longer, or with `objective` mlm and `start_from` its encoder (docs/results.md)"
    )


def compute_auc(scores: Sequence[Scores]) -> float:
    """Return the area under the ROC curve over all batches; NaN where all labels are equal."""
    from sklearn.metrics import roc_auc_score  # 1.6 CPU seconds, for who trains ELECTRA

    logits, labels = (np.concatenate(parts) for parts in zip(*scores, strict=True))
    return float(roc_auc_score(labels, logits)) if 0 < labels.sum() < len(labels) else float("nan")
