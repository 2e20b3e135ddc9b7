"""How good the networks are on text they do not train on, measured the same way every time.

Masked positions and the random keys of the samples are fixed, so that two measurements differ by the weights alone. The
discriminator is measured twice: on what the generator puts there now (`validation_discriminator_…`), which gets harder
while the generator learns, and on replacements fixed for good, tokens drawn by their frequency
(`validation_fixed_…`), which can be compared between steps and between runs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from model.device import Device
from model.pretraining.attention import within_documents
from model.pretraining.batches import Arrays, Batches
from model.pretraining.electra import Batch, Electra, corrupt
from model.pretraining.mlm import MaskedLanguageModel

Model = Electra | MaskedLanguageModel
FIXED = 2  # tells the random numbers of the fixed replacements from the others


@dataclass
class Scores:
    """Logits and labels of every real token seen."""

    logits: list[NDArray[np.float32]] = field(default_factory=list)
    labels: list[NDArray[np.bool_]] = field(default_factory=list)

    def add(self, logits: Tensor, replaced: Tensor, real: Tensor) -> None:
        keep = real.bool().cpu()
        self.logits.append(logits.float().cpu()[keep].numpy())
        self.labels.append(replaced.cpu()[keep].numpy() > 0)

    def describe(self, prefix: str) -> dict[str, float]:
        logits, labels = np.concatenate(self.logits).astype(np.float64), np.concatenate(self.labels)
        said = logits > 0
        found = int((said & labels).sum())
        numbers = {
            "loss": float(np.mean(np.logaddexp(0, logits) - logits * labels)),
            "precision": found / max(int(said.sum()), 1),
            "recall": found / max(int(labels.sum()), 1),
            "auc": float(roc_auc_score(labels, logits)) if labels.any() and not labels.all() else float("nan"),
        }
        return {f"{prefix}_{name}": number for name, number in numbers.items()}


@dataclass(frozen=True)
class Validation:
    """The first sequences of the dev shards; always the same ones."""

    batches: Batches
    count: int  # batches
    seed: int

    def __call__(self, model: Model, device: Device, stopping: Callable[[], bool] = lambda: False) -> dict[str, float]:
        """The measures; none where the process is told to stop in the middle."""
        model.eval()
        with torch.no_grad():
            numbers = self._measure(model, device, stopping)
        model.train()
        return numbers

    def _measure(self, model: Model, device: Device, stopping: Callable[[], bool]) -> dict[str, float]:
        sums: dict[str, float] = {}
        now, fixed = Scores(), Scores()
        for step, arrays in enumerate(self._arrays()):
            if stopping():
                return {}
            batch = device.put(arrays)
            for name, value in model(batch).sums.items():
                sums[name] = sums.get(name, 0.0) + float(value.item())
            if isinstance(model, Electra):
                _detect(model, batch, self._replacements(arrays, step), now, fixed)
        numbers = {f"validation_{name}": value for name, value in model.describe(sums).items()}
        if now.logits:
            numbers |= now.describe("validation_discriminator") | fixed.describe("validation_fixed")
        return numbers

    def _arrays(self) -> Iterator[Arrays]:
        batches = self.batches.steps(0)
        for _ in range(self.count):
            yield next(batches)

    def _replacements(self, arrays: Arrays, step: int) -> NDArray[np.int64]:
        """[sequences · slots] ids drawn from this batch's own tokens, so by their frequency."""
        rng = np.random.default_rng([self.seed, FIXED, step])
        documents: NDArray[Any] = arrays["documents"]
        ids: NDArray[Any] = arrays["input_ids"][documents > 0]
        special = self.batches.special
        words = ids[(ids != special.cls) & (ids != special.sep)]
        return rng.choice(words, size=arrays["masked_positions"].size).astype(np.int64)


def _detect(model: Electra, batch: Batch, replacements: NDArray[np.int64], now: Scores, fixed: Scores) -> None:
    attention = within_documents(batch, model.dtype)
    vectors = model.propose(batch, attention)
    temperature = model.config.temperature
    _, sampled, _ = model.generator_head.losses(vectors, model.embeddings.word, batch, temperature)
    given = torch.as_tensor(replacements, device=sampled.device)
    for scores, ids in ((now, sampled), (fixed, given)):
        corrupted, replaced = corrupt(batch, ids)
        scores.add(model.detect(corrupted, batch["positions"], attention), replaced, batch["documents"] > 0)
