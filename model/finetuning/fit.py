"""Fine-tune: tokenize the data, train the grid of learning rates, keep the best on dev, resume."""

import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.arms.arm import Diverged
from amazon_electra.model.config import FinetuningSettings
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
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.features import Featurizer, PackedFeatures, load_features
from amazon_electra.model.finetuning.head import Head
from amazon_electra.model.finetuning.request import Request, Start, load_split
from amazon_electra.model.finetuning.training import (
    Attempt,
    TrainingSetup,
    balance_class_weights,
    read_checkpoint_step,
    read_finished_attempt,
    train,
    write_attempt,
)
from amazon_electra.model.tracking.metrics_log import MetricsLog


@dataclass(frozen=True)
class FineTuning:
    """A request with its data, tokenized, and its teacher: the same for every learning rate."""

    request: Request
    device: Device
    head: Head
    featurizer: Featurizer
    features: PackedFeatures
    dev: Sequence[Example]
    dev_features: PackedFeatures
    teacher: Teacher | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def prepare(
        cls, request: Request, examples: Sequence[Example], dev: Sequence[Example], device: Device
    ) -> Self:
        """Tokenize the examples, and load the teacher; print the warnings too."""
        task, settings, teacher = request.task, request.settings, request.start.teacher
        folder = find_tokenizer(request.start)
        max_length, warning = network.choose_max_length(folder, task, settings)
        head = Head(task.name, task.shape, task.labels, max_length, settings.stride)
        featurizer = head.make_featurizer(network.load_tokenizer(folder))
        features = load_features(featurizer, examples, request.cache)
        if task.shape == "span" and settings.empty_windows is not None:
            generator = np.random.default_rng(request.seed)
            features.drop_empty_windows(settings.empty_windows, generator)
        if warning:
            print(f"warning: {warning}", file=sys.stderr)
        return cls(
            request,
            device,
            head,
            featurizer,
            features,
            dev,
            load_features(featurizer, dev, request.cache),
            load_teacher(teacher, task, examples, device) if teacher else None,
            (warning,) if warning else (),
        )

    def plan_training(self) -> TrainingSetup:
        """Return all that a training needs but the network; nothing is reported yet."""
        task, settings, weights = self.request.task, self.request.settings, None
        if settings.class_weights == "balanced":
            labels = self.features.targets.numbers
            weights = balance_class_weights(labels, len(task.labels)).to(self.device.torch)
        return TrainingSetup(
            features=self.features,
            shape=task.shape,
            settings=settings.replace(max_length=self.head.max_length),
            seed=self.request.seed,
            device=self.device,
            score_dev=self.score_dev,
            report=lambda step, numbers: None,
            class_weights=weights,
            pad_id=self.featurizer.tokenizer.token_to_id("[PAD]") or 0,
        )

    def build_network(self) -> nn.Module:
        """Return the network on the device as every training of this seed begins."""
        torch.manual_seed(self.request.seed)
        model = build_start_network(self.request.start, self.request.task, self.request.settings)
        network.prepare_network(model, self.head, self.device)
        return model

    def train(self, rate: float, **changes: Any) -> tuple[nn.Module, Attempt]:
        """Train with one learning rate; `changes` are fields of TrainingSetup."""
        training, model = replace(self.plan_training(), **changes), self.build_network()
        if self.teacher:
            loss = DistillationLoss(self.teacher, model, self.featurizer.tokenizer, training)
            training = replace(training, loss=loss)
        return model, train(model, training, rate)

    def score_dev(self, model: nn.Module) -> dict[str, float]:
        """Return the metrics on dev, where there is one. Where questions may have no answer they
        are those at this very state's best threshold: at a fixed one another state would look best.
        """
        if not self.dev:
            return {}
        task = self.request.task
        tunes_threshold = task.shape == "span" and not task.always_answered
        logits = network.predict_logits(model, self.dev_features, task.shape, self.device)
        threshold = math.inf if tunes_threshold else 0.0
        predictions = make_predictions(logits, self.dev_features, self.dev, task, threshold)
        chosen = {}
        if tunes_threshold:
            chosen["threshold"], _ = spans.find_best_threshold(predictions)
            predictions = spans.apply_threshold(predictions, chosen["threshold"])
        return {name: metrics.compute_metric(name, predictions) for name in task.metrics} | chosen


def train_network(
    request: Request, examples: Sequence[Example], dev: Sequence[Example], device: str, output: Path
) -> tuple[nn.Module, Head, dict[str, Any]]:
    """Return the network best on dev, its head, and the facts for result.json. Steps of one
    learning rate follow those of the one before, so that a curve has one value at each step.
    """
    target = open_device(device, request.settings.precision)
    tuning = FineTuning.prepare(request, examples, dev, target)
    steps, rates = tuning.plan_training().steps, request.settings.learning_rates
    attempts, model = list[Attempt](), None
    same_request = hashlib.sha256((output / "run.json").read_bytes()).hexdigest()[:16]
    title = f"fine-tuning {request.task.name}, seed {request.seed}"
    with Progress(steps * len(rates), "steps", title) as shown:

        def make_report(i: int, log: MetricsLog) -> Callable[[int, dict[str, Any]], None]:
            def report(step: int, numbers: dict[str, Any]) -> None:
                log.log(i * steps + step, attempt=i, peak_learning_rate=rates[i], **numbers)
                shown.update(i * steps + step, loss=numbers["train_loss"])

            return report

        for i, rate in enumerate(rates):
            folder, before = output / "attempts" / f"{same_request}-{rate:g}", i * steps
            attempt = read_finished_attempt(folder)
            if attempt is None:
                kept = folder / "checkpoints"
                log = MetricsLog(output, after_step=before + read_checkpoint_step(kept))
                model, attempt = tuning.train(
                    rate,
                    checkpoint=kept,
                    report=make_report(i, log),
                    show_step=lambda step, before=before: shown.update(before + step),
                )
                write_attempt(attempt, folder)
            attempts.append(attempt)
            shown.update(before + steps)
    best = max(attempts, key=Attempt.rank_key)
    if not best.state:
        raise Diverged(f"every learning rate diverged: {rates}; give lower ones", "learning_rates")
    model = model or tuning.build_network()
    model.cpu().load_state_dict(best.state)
    facts = {
        "learning_rate": best.learning_rate,
        "dev": best.dev,
        "tried": [attempt.summarize() for attempt in attempts],
        "n_train": sum(not example.is_swapped for example in examples),
        **({"warnings": list(tuning.warnings)} if tuning.warnings else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "examples_per_second": best.examples_per_second,
        "device": target.kind,
    }
    return model, replace(tuning.head, threshold=best.dev.get("threshold", 0.0)), facts


def load_tuning(request: Request, device: Device) -> FineTuning:
    """Return a fine-tuning of the train and dev splits that a request names."""
    (train, _), (dev, _) = (load_split(request, split) for split in ("train", "dev"))
    return FineTuning.prepare(request, train, dev, device)


def find_tokenizer(start: Start) -> str:
    """Return the folder or hub name whose tokenizer is used."""
    if start.part_of:
        return str(start.part_of)
    return network.find_source_folder(start.encoder, start.architecture)


def build_start_network(start: Start, task: Task, settings: FinetuningSettings) -> nn.Module:
    """Return the network before fine-tuning; seed torch first, because the head is drawn here."""
    if start.part_of:
        return cut_teacher(start.part_of, start.encoder, settings.dropout)
    return network.build_network(start.encoder, start.architecture, task, settings.dropout)
