"""Fine-tune: tokenize the data, train the grid of learning rates, keep the best on dev, resume."""

import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

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
class PreparedData:
    """Data ready for training, the same for every learning rate."""

    head: Head
    featurizer: Featurizer
    train: Sequence[Example]
    """Empty without a teacher, who alone reads them again."""
    dev: Sequence[Example]
    train_features: PackedFeatures
    dev_features: PackedFeatures
    warnings: list[str]


def train_network(
    request: Request,
    examples: Sequence[Example],
    dev: Sequence[Example],
    device: str,
    output: Path,
) -> tuple[nn.Module, Head, dict[str, Any]]:
    """Return the network best on dev, its head, and what result.json says of it. Steps of one
    learning rate follow those of the one before, so that a curve has one value at each step.
    """
    target = open_device(device, request.settings.precision)
    prepared = prepare_examples(request, examples, dev)
    training = make_training(request, prepared, target)
    teacher = load_start_teacher(request, prepared, target)
    rates, attempts, model = request.settings.learning_rates, list[Attempt](), None
    same_request = hashlib.sha256((output / "run.json").read_bytes()).hexdigest()[:16]
    title = f"fine-tuning {request.task.name}, seed {request.seed}"
    with Progress(training.steps * len(rates), "steps", title) as shown:

        def show(before: int, step: int) -> None:
            shown.update(before + step)

        def report(i: int, log: MetricsLog, step: int, numbers: dict[str, Any]) -> None:
            step += i * training.steps
            log.log(step, attempt=i, peak_learning_rate=rates[i], **numbers)
            shown.update(step, loss=numbers["train_loss"])

        for i, rate in enumerate(rates):
            folder, before = output / "attempts" / f"{same_request}-{rate:g}", i * training.steps
            attempt = read_finished_attempt(folder)
            if attempt is None:
                model, loss = _begin(request, prepared, training, teacher)
                kept = folder / "checkpoints"
                log = MetricsLog(output, after_step=before + read_checkpoint_step(kept))

                own = replace(training, loss=loss, checkpoint=kept)
                own = replace(own, report=partial(report, i, log), show_step=partial(show, before))
                attempt = train(model, own, rate)
                write_attempt(attempt, folder)
            attempts.append(attempt)
            shown.update(before + training.steps)
    best = max(attempts, key=Attempt.rank_key)
    if not best.state:
        raise Diverged(f"every learning rate diverged: {rates}; give lower ones", "learning_rates")
    model = model or build_start_network(request.start, request.task, request.settings)
    model.cpu().load_state_dict(best.state)
    facts = {
        "learning_rate": best.learning_rate,
        "dev": best.dev,
        "tried": [attempt.summarize() for attempt in attempts],
        "n_train": sum(not example.is_swapped for example in examples),
        **({"warnings": prepared.warnings} if prepared.warnings else {}),
        "parameters": sum(p.numel() for p in model.parameters()),
        "examples_per_second": best.examples_per_second,
        "device": target.kind,
    }
    return model, replace(prepared.head, threshold=best.dev.get("threshold", 0.0)), facts


def prepare_data(request: Request) -> PreparedData:
    """Read and tokenize the train and dev splits; print the warnings too."""
    (train, _), (dev, _) = (load_split(request, split) for split in ("train", "dev"))
    return prepare_examples(request, train, dev)


def prepare_examples(
    request: Request, train: Sequence[Example], dev: Sequence[Example]
) -> PreparedData:
    """Tokenize the examples; print the warnings too."""
    task, settings, seed = request.task, request.settings, request.seed
    folder = find_tokenizer(request.start)
    max_length, warning = network.choose_max_length(folder, task, settings)
    head = Head(task.name, task.shape, task.labels, max_length, settings.stride)
    featurizer = head.make_featurizer(network.load_tokenizer(folder))
    features = load_features(featurizer, train, request.cache)
    if task.shape == "span" and settings.empty_windows is not None:
        features.drop_empty_windows(settings.empty_windows, np.random.default_rng(seed))
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    return PreparedData(
        head=head,
        featurizer=featurizer,
        train=train if request.start.teacher else [],
        dev=dev,
        train_features=features,
        dev_features=load_features(featurizer, dev, request.cache),
        warnings=[warning] if warning else [],
    )


def find_tokenizer(start: Start) -> str:
    """Return the folder or hub name whose tokenizer is used."""
    if start.part_of:
        return str(start.part_of)
    return network.find_source_folder(start.encoder, start.architecture)


def build_start_network(start: Start, task: Task, settings: FinetuningSettings) -> nn.Module:
    """Return the network before fine-tuning; seed torch first, because the head is drawn here."""
    if start.part_of:
        return cut_teacher(start.part_of, start.encoder, settings.dropout)
    return network.build_network(
        start.encoder,
        start.architecture,
        task,
        settings.dropout,
        start.initializer_range,
    )


def train_first_rate(
    request: Request,
    prepared: PreparedData,
    device: Device,
    teacher: Teacher | None,
    report: Callable[[float, dict[str, Any]], None],
) -> Attempt:
    """Train with the first learning rate, and tell `report` the share that is done."""
    training = make_training(request, prepared, device)
    model, loss = _begin(request, prepared, training, teacher)
    own = replace(
        training, loss=loss, report=lambda step, numbers: report(step / training.steps, numbers)
    )
    return train(model, own, request.settings.learning_rates[0])


def make_training(request: Request, prepared: PreparedData, device: Device) -> TrainingSetup:
    """Return all that a training needs but the network; nothing is reported yet."""
    task = request.task
    weights = None
    if request.settings.class_weights == "balanced":
        weights = balance_class_weights(
            prepared.train_features.targets.numbers, len(task.labels)
        ).to(device.torch)
    return TrainingSetup(
        features=prepared.train_features,
        shape=task.shape,
        settings=request.settings.replace(max_length=prepared.head.max_length),
        seed=request.seed,
        device=device,
        score_dev=lambda model: _score_dev(model, request, prepared, device),
        report=lambda step, numbers: None,
        class_weights=weights,
        pad_id=prepared.featurizer.tokenizer.token_to_id("[PAD]") or 0,
    )


def load_start_teacher(request: Request, prepared: PreparedData, device: Device) -> Teacher | None:
    """Load the teacher of a distillation with its logits; None where there is none."""
    if request.start.teacher is None:
        return None
    return load_teacher(request.start.teacher, request.task, prepared.train, device)


def _begin(
    request: Request, prepared: PreparedData, training: TrainingSetup, teacher: Teacher | None
) -> tuple[nn.Module, nn.Module | None]:
    """Return the network as every training of this seed begins, and a teacher's loss."""
    settings, device = request.settings, training.device
    torch.manual_seed(request.seed)
    model = build_start_network(request.start, request.task, settings)
    network.prepare_network(model, prepared.head, device)
    if teacher is None:
        return model, None
    return model, DistillationLoss(teacher, model, prepared.featurizer.tokenizer, training)


def _score_dev(
    model: nn.Module, request: Request, prepared: PreparedData, device: Device
) -> dict[str, float]:
    """Return the metrics on dev, where there is one. Where questions may have no answer they are
    those at this very state's best threshold: at a fixed one another state would look best.
    """
    if not prepared.dev:
        return {}
    task = request.task
    tunes_threshold = task.shape == "span" and not task.always_answered
    logits = network.predict_logits(model, prepared.dev_features, task.shape, device)
    threshold = math.inf if tunes_threshold else 0.0
    predictions = make_predictions(logits, prepared.dev_features, prepared.dev, task, threshold)
    chosen = {}
    if tunes_threshold:
        chosen["threshold"], _ = spans.find_best_threshold(predictions)
        predictions = spans.apply_threshold(predictions, chosen["threshold"])
    return {name: metrics.compute_metric(name, predictions) for name in task.metrics} | chosen
