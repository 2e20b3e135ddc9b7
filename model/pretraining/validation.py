"""Measures the networks on text they do not train on, the same way every time.

Masked positions and the random keys of the samples are fixed, so that two measurements differ by
the weights alone. The discriminator is measured twice: on what the generator puts there now
(`validation_discriminator_…`), which gets harder while the generator learns, and on replacements
fixed for good, tokens drawn by their frequency (`validation_fixed_…`), which can be compared
between steps and between runs.

At a small budget ELECTRA's discriminator may become a constant: then the effective rank of its
token states falls (recipe `sample`, 2 M tokens of real reviews: from 75 to 2.2) and their mean
cosine rises (from 0.43 to 0.94). A longer run leaves that state; one that starts from a masked
language model which has learned more than word frequencies was not in it at any validation:
`git show ed7f0f0:docs/results.md`, "What gets ELECTRA off the plateau".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from amazon_electra.model.device import Device
from amazon_electra.model.pretraining.input.batches import Arrays, Batches
from amazon_electra.model.pretraining.network.electra import Electra, corrupt_batch
from amazon_electra.model.pretraining.network.encoder import build_attention
from amazon_electra.model.pretraining.network.masked_prediction import Batch, PretrainingModel

VALIDATIONS = 10
"""Of a run that does not say how often."""
VALIDATED_SHARE = 0.03
"""Sequences that such a run is measured on for each that it trains on, at most; one costs up to
three quarters of what training on it does: the forward passes of the objective, and two more of the
discriminator.
"""
CONSTANT_AUC = 0.55  # a discriminator below finds replaced tokens hardly better than by chance
FIXED_REPLACEMENTS = 2  # keeps the random numbers of the fixed replacements apart from the others


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


@dataclass(frozen=True)
class Scores:
    """The logits and labels of real tokens."""

    logits: NDArray[np.float32]
    labels: NDArray[np.bool_]

    @classmethod
    def read(cls, logits: Tensor, replaced: Tensor, real: Tensor) -> "Scores":
        """Return those of a batch; all three are [sequences, length]."""
        keep = real.bool().cpu()
        return cls(logits.float().cpu()[keep].numpy(), replaced.cpu()[keep].numpy() > 0)

    @classmethod
    def join(cls, parts: Sequence["Scores"]) -> "Scores":
        """Return the tokens of all parts, in their order."""
        logits, labels = ([getattr(part, name) for part in parts] for name in ("logits", "labels"))
        return cls(np.concatenate(logits), np.concatenate(labels))

    def compute_measures(self, prefix: str) -> dict[str, float]:
        """Return loss, precision, recall and AUC; the AUC is NaN where all labels are equal."""
        from sklearn.metrics import roc_auc_score  # 1.6 CPU seconds, for who trains ELECTRA

        logits, labels = self.logits.astype(np.float64), self.labels
        positive = logits > 0
        hits = int((positive & labels).sum())
        numbers = {
            "loss": float(np.mean(np.logaddexp(0, logits) - logits * labels)),
            "precision": hits / max(int(positive.sum()), 1),
            "recall": hits / max(int(labels.sum()), 1),
            "auc": float(roc_auc_score(labels, logits))
            if labels.any() and not labels.all()
            else float("nan"),
        }
        return {f"{prefix}_{name}": number for name, number in numbers.items()}


@dataclass
class Part:
    """What one process measured: sums and scores of each of its batches, by their number."""

    batches: dict[int, tuple[dict[str, float], dict[str, Scores]]] = field(default_factory=dict)
    spread: StateSpread = field(default_factory=StateSpread)


@dataclass(frozen=True)
class Validation:
    """Measures on the first sequences of the dev shards, always the same ones."""

    batches: Batches
    count: int  # batches

    def __call__(
        self, model: PretrainingModel, device: Device, stopping: Callable[[], bool] = lambda: False
    ) -> dict[str, float]:
        """Return the measures, the same in every process: each takes some of the batches.

        An empty dict if `stopping` turns true in the middle in any of them.
        """
        model.eval()
        with torch.no_grad():
            part = self._measure_batches(model, device, stopping)
        model.train()
        parts = [part] if device.moves_together else device.gather_parts(part)
        measured = [one for one in parts if one is not None]
        return self._join_parts(model, measured) if len(measured) == len(parts) else {}

    def _measure_batches(
        self, model: PretrainingModel, device: Device, stopping: Callable[[], bool]
    ) -> "Part | None":
        rank, processes = (0, 1) if device.moves_together else (device.rank, device.world_size)
        part = Part()
        batches = self.batches.iterate_steps(rank, processes)
        for step in range(rank, self.count, processes):
            if stopping():
                return None
            arrays = next(batches)
            batch = self.batches.mask(device.put_whole(arrays))
            sums = {name: float(value.item()) for name, value in model(batch).sums.items()}
            scores: dict[str, Scores] = {}
            if isinstance(model, Electra):
                slots = batch["masked_positions"].numel()
                replacements = self._draw_replacements(arrays, slots, step)
                scores = _score_replacements(model, batch, replacements, part.spread)
            else:  # of the tokens that the network sees in training, [MASK] among them
                states = model.encode(batch["masked_ids"], batch)[-1]
                part.spread.add(states, batch["documents"] > 0)
            part.batches[step] = sums, scores
        return part

    def _join_parts(self, model: PretrainingModel, parts: "list[Part]") -> dict[str, float]:
        """Return the measures of all batches, in their order."""
        by_step = {step: batch for part in parts for step, batch in part.batches.items()}
        batches = [by_step[step] for step in range(self.count)]
        sums: dict[str, float] = {}
        for of_batch, _ in batches:
            for name, value in of_batch.items():
                sums[name] = sums.get(name, 0.0) + value
        numbers = {f"validation_{name}": value for name, value in model.compute_means(sums).items()}
        spread = StateSpread.join([part.spread for part in parts if part.batches])
        numbers |= spread.compute_measures(f"validation_{model.trunk_name}")
        for name in batches[0][1]:
            joined = Scores.join([scores[name] for _, scores in batches])
            numbers |= joined.compute_measures(f"validation_{name}")
        return numbers

    def _draw_replacements(self, arrays: Arrays, slots: int, step: int) -> NDArray[np.int64]:
        """Draw [slots] ids from this batch's own tokens, so by their frequency."""
        rng = np.random.default_rng([self.batches.seed, FIXED_REPLACEMENTS, step])
        documents: NDArray[Any] = arrays["documents"]
        ids: NDArray[Any] = arrays["input_ids"][documents > 0]
        special = self.batches.special
        words = ids[(ids != special.cls) & (ids != special.sep)]
        return rng.choice(words, size=slots).astype(np.int64)


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
        "train with `objective='mlm'` and `start_from` its encoder (docs/results.md)"
    )


def _score_replacements(
    model: Electra, batch: Batch, replacements: NDArray[np.int64], spread: StateSpread
) -> dict[str, Scores]:
    """Return how the discriminator scores tokens sampled now and fixed replacements; its states on
    the sampled ones are added to `spread`.
    """
    attention = build_attention(batch, model.dtype)
    vectors = model.propose_tokens(batch, attention)
    word = model.embeddings.word
    sampled = model.generator_head.compute_losses(vectors, word, batch).sampled
    drawn = torch.as_tensor(replacements, device=sampled.device)
    real = batch["documents"] > 0
    scores = {}
    for name, ids in (("discriminator", sampled), ("fixed", drawn)):
        corrupted, replaced = corrupt_batch(batch, ids)
        states = model.encode_tokens(corrupted, batch, attention)
        if name == "discriminator":
            spread.add(states, real)
        scores[name] = Scores.read(model.discriminator_head(states), replaced, real)
    return scores
