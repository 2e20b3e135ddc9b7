"""Fine-tune: tokenize the data, train the grid of learning rates, keep the best on dev, resume."""

import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.arms.arm import WORK, Diverged
from amazon_electra.model.device import Device, open_device
from amazon_electra.model.evaluation import metrics, spans
from amazon_electra.model.evaluation.predict import make_predictions
from amazon_electra.model.finetuning import network
from amazon_electra.model.finetuning.distillation import (
    DistillationLoss,
    Teacher,
    cut_teacher,
    load_teacher,
)
from amazon_electra.model.finetuning.examples import Example
from amazon_electra.model.finetuning.features import Feature, Featurizer, drop_empty_windows
from amazon_electra.model.finetuning.head import Head
from amazon_electra.model.finetuning.request import Request, Start, load_split
from amazon_electra.model.finetuning.training import (
    Attempt,
    TrainingSetup,
    balance_class_weights,
    freeze_layers,
    train,
)
from amazon_electra.model.runtime import find_newest_step
from amazon_electra.model.tracking.metrics_log import MetricsLog


@dataclass(frozen=True)
class FineTuning:
    """A request with its data, tokenized, and its teacher: the same for every learning rate."""

    request: Request
    device: Device
    head: Head
    featurizer: Featurizer
    features: Sequence[Feature]
    dev: Sequence[Example]
    dev_features: Sequence[Feature]
    teacher: Teacher | None = None
    warning: str | None = None

    @classmethod
    def prepare(
        cls, request: Request, examples: Sequence[Example], dev: Sequence[Example], device: Device
    ) -> Self:
        """Tokenize the examples, and load the teacher; print the warning too."""
        task, settings, folder = request.task, request.settings, request.start.teacher
        teacher = load_teacher(folder, task, examples, device) if folder else None
        source = find_tokenizer(request.start)
        max_length, warning = network.choose_max_length(source, task, settings)
        head = Head(task.name, task.shape, task.labels, max_length, settings.stride)
        featurizer = head.make_featurizer(network.load_tokenizer(source))
        features, of_dev = featurizer(examples), featurizer(dev)
        if task.shape == "span" and settings.empty_windows is not None:
            generator = np.random.default_rng(request.seed)
            features = drop_empty_windows(features, settings.empty_windows, generator)
        if warning:
            print(f"warning: {warning}", file=sys.stderr)
        return cls(request, device, head, featurizer, features, dev, of_dev, teacher, warning)

    def plan_training(self) -> TrainingSetup:
        """Return all that a training needs but the network; nothing is reported yet."""
        task, settings, weights = self.request.task, self.request.settings, None
        if settings.class_weights == "balanced":
            labels = np.array([feature.target for feature in self.features])
            weights = balance_class_weights(labels, len(task.labels)).to(self.device.torch)
        return TrainingSetup(
            features=self.features,
            shape=task.shape,
            settings=settings.replace(max_length=self.head.max_length),
            seed=self.request.seed,
            device=self.device,
            score_dev=self.score_dev,
            class_weights=weights,
            pad_id=self.featurizer.tokenizer.token_to_id("[PAD]") or 0,
        )

    def build_network(self) -> nn.Module:
        """Return the network on the device as every training of this seed begins."""
        torch.manual_seed(self.request.seed)
        start, dropout = self.request.start, self.request.settings.dropout
        if start.part_of:
            model = cut_teacher(start.part_of, start.encoder, dropout)
        else:
            task = self.request.task
            model = network.build_network(start.encoder, start.architecture, task, dropout)
        network.prepare_network(model, self.head, self.device)
        freeze_layers(model, self.request.settings.frozen_share)
        return model

    def train(self, rate: float, **changes: Any) -> tuple[nn.Module, Attempt]:
        """Train with one learning rate; `changes` are fields of TrainingSetup."""
        training, model = replace(self.plan_training(), **changes), self.build_network()
        if self.teacher:
            loss = DistillationLoss(self.teacher, model, self.featurizer.tokenizer, training)
            training = replace(training, loss=loss)
        return model, train(model, training, rate)

    def train_rate(self, place: int, output: Path, shown: Progress) -> tuple[nn.Module, Attempt]:
        """Train with a learning rate of the settings, or go on with it, in the folder `output`."""
        rate, steps = self.request.settings.learning_rates[place], self.plan_training().steps
        before, asked = place * steps, (output / "run.json").read_bytes()
        folder = output / WORK / f"{hashlib.sha256(asked).hexdigest()[:16]}-{rate:g}"
        log = MetricsLog(output, after_step=before + max(0, find_newest_step(folder)))

        def report(step: int, numbers: dict[str, Any]) -> None:
            log.log(before + step, attempt=place, peak_learning_rate=rate, **numbers)
            shown.update(before + step, loss=numbers["train_loss"])

        def show_step(step: int) -> None:
            shown.update(before + step)

        trained = self.train(rate, checkpoint=folder, report=report, show_step=show_step)
        show_step(steps)
        return trained

    def score_dev(self, model: nn.Module) -> dict[str, float]:
        """Return the metrics on dev, where there is one. Where questions may have no answer they
        are those at this very state's best threshold: at a fixed one another state would look best.
        """
        if not self.dev:
            return {}
        task = self.request.task
        logits = network.predict_logits(model, self.dev_features, task.shape, self.device)
        chosen = dict[str, float]()
        if task.shape == "span" and not task.always_answered:
            every = make_predictions(logits, self.dev_features, self.dev, task, math.inf)
            chosen["threshold"], _ = spans.find_best_threshold(every)
        threshold = chosen.get("threshold", 0.0)
        predictions = make_predictions(logits, self.dev_features, self.dev, task, threshold)
        return {name: metrics.compute_metric(name, predictions) for name in task.metrics} | chosen


def train_network(
    request: Request, examples: Sequence[Example], dev: Sequence[Example], device: str, output: Path
) -> tuple[nn.Module, Head, dict[str, Any]]:
    """Return the network best on dev, its head, and the facts for result.json."""
    target = open_device(device, request.settings.precision)
    tuning = FineTuning.prepare(request, examples, dev, target)
    rates, attempts = request.settings.learning_rates, list[Attempt]()
    title = f"fine-tuning {request.task.name}, seed {request.seed}"
    with Progress(tuning.plan_training().steps * len(rates), "steps", title) as shown:
        for place in range(len(rates)):
            model, attempt = tuning.train_rate(place, output, shown)
            attempts.append(attempt)
    best = max(attempts, key=lambda one: metrics.rank_dev_metrics(one.dev))
    if not best.state:
        raise Diverged(f"every learning rate diverged: {rates}; give lower ones", "learning_rates")
    model.cpu().load_state_dict(best.state)
    facts = {
        "learning_rate": best.learning_rate,
        "dev": best.dev,
        "tried": [attempt.summarize() for attempt in attempts],
        "n_train": sum(not example.is_swapped for example in examples),
        **({"warnings": [tuning.warning]} if tuning.warning else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "examples_per_second": best.examples_per_second,
        "device": target.kind,
    }
    return model, replace(tuning.head, threshold=best.dev.get("threshold", 0.0)), facts


def load_tuning(request: Request, device: Device) -> FineTuning:
    (train, _), (dev, _) = (load_split(request, split) for split in ("train", "dev"))
    return FineTuning.prepare(request, train, dev, device)


def find_tokenizer(start: Start) -> str:
    if start.part_of:
        return str(start.part_of)
    return network.find_source_folder(start.encoder, start.architecture)
