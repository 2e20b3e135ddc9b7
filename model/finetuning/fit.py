"""One fine-tuning from data to model folder: the grid of learning rates, selection on dev, resume after a kill."""

import hashlib
import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from torch import nn

from model.command import UserMistake
from model.device import Device, open_device
from model.evaluation import metrics, spans
from model.evaluation.predict import judge
from model.finetuning import encoders
from model.finetuning.attempt import Attempt, finished, keep
from model.finetuning.batches import Encoder, Feature
from model.finetuning.checkpoint import step_of
from model.finetuning.config import FinetuningSettings
from model.finetuning.distillation import DistillationLoss, Teacher, half_of, load_teacher
from model.finetuning.encoders import Head
from model.finetuning.examples import Example, Task, load
from model.finetuning.loop import Training, train
from model.finetuning.losses import balanced_weights
from model.finetuning.packed_features import PackedFeatures
from model.json_file import write_json
from model.metrics_log import MetricsLog
from model.progress import progress

WRITTEN_OUT_ATTENTION = 128
"""Tokens up to which a CPU is faster with attention that is not fused."""


@dataclass(frozen=True)
class Start:
    """What the network is before fine-tuning."""

    encoder: str
    """Folder or hub name, `random`, or `half` for every second layer of the teacher."""
    architecture: str | None = None
    teacher: Path | None = None
    teacher_outputs: Path | None = None
    """Where what teachers said is kept for all their students; None: with the result, for this one."""

    @property
    def tokenizer_folder(self) -> str:
        if self.encoder == "half":
            return str(self._teacher())
        return encoders.source_folder(self.encoder, self.architecture)

    def pooling(self, settings: FinetuningSettings) -> str:
        """Half a teacher is pooled as the teacher is."""
        return encoders.read_head(self._teacher()).pooling if self.encoder == "half" else settings.pooling

    def build(self, task: Task, settings: FinetuningSettings) -> nn.Module:
        if self.encoder == "half":
            return half_of(self._teacher(), settings.dropout)
        return encoders.build(self.encoder, self.architecture, task, settings.pooling, settings.dropout)

    def _teacher(self) -> Path:
        if self.teacher is None:
            raise UserMistake("--encoder half needs --teacher DIR: a folder made by model.finetune")
        return self.teacher


@dataclass(frozen=True)
class Prepared:
    """Data ready for training; the same for every learning rate."""

    head: Head
    encode: Encoder
    train: list[Example]
    dev: list[Example]
    train_features: Sequence[Feature]
    dev_features: list[Feature]
    left_out: dict[str, dict[str, int]]
    """Examples of train and dev that are not used, by reason."""


def fit(
    start: Start,
    task: Task,
    data: Path,
    output: Path,
    settings: FinetuningSettings,
    seed: int = 0,
    device: str = "auto",
) -> dict[str, Any]:
    started, cpu_started = time.perf_counter(), time.process_time()
    check(task, settings, seed)
    question = _question(start, task, data, settings, seed)
    make_folder("--output", output)
    write_json(output / "run.json", question)
    target = open_device(device, settings.precision)
    prepared = prepare(start, task, data, settings, seed)
    model, best, attempts = _best(start, task, prepared, settings, seed, target, output)
    head = prepared.head
    if task.shape == "span" and not task.always_answered:
        head = replace(head, threshold=_threshold(model.to(target.torch), prepared, target, task))
    encoders.save(model, head, start.tokenizer_folder, output)
    result = question | {
        "learning_rate": best.learning_rate,
        "dev": best.dev,
        "tried": [attempt.summary() for attempt in attempts],
        "n_train": len(prepared.train),
        "n_dev": len(prepared.dev),
        "left_out": prepared.left_out,
        "parameters": sum(p.numel() for p in model.parameters()),
        "examples_per_second": best.examples_per_second,
        "device": target.kind,
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_seconds": round(time.process_time() - cpu_started, 3),
    }
    write_json(output / "result.json", result)
    shutil.rmtree(output / "attempts", ignore_errors=True)
    return result


def fitted(
    start: Start, task: Task, data: Path, output: Path, settings: FinetuningSettings, seed: int
) -> dict[str, Any] | None:
    """The result that is in the folder if the same was asked and, as make judges, nothing it is made of is newer."""
    file = output / "result.json"
    if not file.exists():
        return None
    result = json.loads(file.read_text())
    asked = json.loads(json.dumps(_question(start, task, data, settings, seed)))
    sources = [data, *(Path(name) for name in (start.encoder, start.architecture, start.teacher) if name)]
    files = [f for source in sources for f in (source, *source.rglob("*")) if f.exists()]
    unchanged = all(f.stat().st_mtime <= file.stat().st_mtime for f in files)
    return result if unchanged and asked == {name: result.get(name) for name in asked} else None


def _question(start: Start, task: Task, data: Path, settings: FinetuningSettings, seed: int) -> dict[str, Any]:
    return {
        "task": task.name,
        "seed": seed,
        "encoder": start.encoder,
        "architecture": start.architecture,
        "teacher": str(start.teacher) if start.teacher else None,
        "data": str(data),
        "settings": asdict(settings),
    }


def check(task: Task, settings: FinetuningSettings, seed: int) -> None:
    """What can be refused before anything is read."""
    settings.check(task)
    if not 0 <= seed < 2**32:
        raise UserMistake(f"--seed {seed}: give a number from 0 to {2**32 - 1}")


def make_folder(option: str, folder: Path) -> None:
    """Before anything is computed that could not be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserMistake(f"{option} {folder}: no files can be written there ({error.strerror})") from None


def prepare(start: Start, task: Task, data: Path, settings: FinetuningSettings, seed: int) -> Prepared:
    """Reads and tokenizes train and dev."""
    left_out: dict[str, Counter[str]] = {"train": Counter(), "dev": Counter()}
    train_examples = load(task, data, "train", settings.sampling_of("train", seed), left_out["train"])
    dev_examples = load(task, data, "dev", settings.sampling_of("dev", seed), left_out["dev"])
    pooling = start.pooling(settings) if task.shape in ("classification", "regression") else "none"
    head = Head(task.name, task.shape, task.labels, pooling, settings.max_length, settings.stride, settings.clean)
    tokenizer = encoders.load_tokenizer(start.tokenizer_folder)
    encode = Encoder(tokenizer, task.shape, settings.max_length, settings.stride, settings.clean)
    features, dev_features = PackedFeatures(encode.each(train_examples)), encode(dev_examples)
    counts = {split: dict(of_split) for split, of_split in left_out.items()}
    return Prepared(head, encode, train_examples, dev_examples, features, dev_features, counts)


def _best(
    start: Start,
    task: Task,
    prepared: Prepared,
    settings: FinetuningSettings,
    seed: int,
    device: Device,
    output: Path,
) -> tuple[nn.Module, Attempt, list[Attempt]]:
    """Trains every learning rate, those finished before a kill excepted; the model carries the best state."""
    attempts: list[Attempt] = []
    model: nn.Module | None = None
    training = _training(task, prepared, settings, seed, device)
    teacher = load_teacher_of(start, task, prepared, device, output)
    total = training.steps * len(settings.learning_rates)
    with progress(total, "steps", f"fine-tuning {task.name}, seed {seed}") as shown:
        for i, rate in enumerate(settings.learning_rates):
            folder = _folder(output, rate)
            attempt = finished(folder)
            if attempt is None:
                model, loss = _network(start, task, prepared, training, teacher)
                checkpoint = folder / "checkpoint.pt"
                log = MetricsLog(output, after_step=i * training.steps + step_of(checkpoint))
                report = _reporter(log, shown, i, training.steps, rate)
                attempt = train(model, replace(training, report=report, loss=loss, checkpoint=checkpoint), rate)
                keep(attempt, folder)
            attempts.append(attempt)
            shown.update((i + 1) * training.steps)
    best = max(attempts, key=Attempt.rank)
    if not best.state:
        rates = ", ".join(f"{attempt.learning_rate:g}" for attempt in attempts)
        raise UserMistake(f"every learning rate diverged ({rates}): the loss is no number any more; give lower ones")
    model = model or start.build(task, settings)
    model.cpu().load_state_dict(best.state)
    return model, best, attempts


def train_once(
    start: Start,
    task: Task,
    prepared: Prepared,
    settings: FinetuningSettings,
    seed: int,
    device: Device,
    teacher: Teacher | None,
    report: Callable[[float, dict[str, Any]], None],
) -> Attempt:
    """One training with the first learning rate, nothing kept: what a search tries.

    `report` is told the share of the training that is done, and the numbers.
    """
    training = _training(task, prepared, settings, seed, device)
    model, loss = _network(start, task, prepared, training, teacher)

    def share(step: int, numbers: dict[str, Any]) -> None:
        report(step / training.steps, numbers)

    return train(model, replace(training, report=share, loss=loss), settings.learning_rates[0])


def _network(
    start: Start, task: Task, prepared: Prepared, training: Training, teacher: Teacher | None
) -> tuple[nn.Module, nn.Module | None]:
    """The network as every training of this seed begins, and the loss where a teacher gives it."""
    settings = training.settings
    torch.manual_seed(training.seed)
    model = start.build(task, settings)
    encoders.check_length(model, settings.max_length, start.tokenizer_folder)
    model = _placed(model, settings, training.device)
    loss = DistillationLoss(teacher, model, prepared.encode.tokenizer, training) if teacher else None
    return model, loss


def _placed(model: nn.Module, settings: FinetuningSettings, device: Device) -> nn.Module:
    """On the device; on a CPU short texts are a fifth faster with attention written out than with the fused one."""
    if device.kind == "cpu" and settings.max_length <= WRITTEN_OUT_ATTENTION:
        encoders.write_attention_out(model)
    return model.to(device.torch)


def load_teacher_of(start: Start, task: Task, prepared: Prepared, device: Device, output: Path) -> Teacher | None:
    if start.teacher is None:
        return None
    return load_teacher(start.teacher, task, prepared.train, device, start.teacher_outputs or output)


def _threshold(model: nn.Module, prepared: Prepared, device: Device, task: Task) -> float:
    """When to say that there is no answer, chosen on dev."""
    said = judge(model, prepared.dev_features, prepared.dev, device, task, threshold=math.inf)
    return spans.best_threshold(said)[0]


def _training(task: Task, prepared: Prepared, settings: FinetuningSettings, seed: int, device: Device) -> Training:
    def dev_score(model: nn.Module) -> dict[str, float]:
        said = judge(model, prepared.dev_features, prepared.dev, device, task)
        return {name: metrics.value(name, said) for name in task.metrics}

    weights = None
    if settings.class_weights == "balanced" and task.shape == "classification":
        labels = np.array([e.label for e in prepared.train], dtype=np.int64)
        weights = balanced_weights(labels, len(task.labels)).to(device.torch)
    return Training(
        features=prepared.train_features,
        shape=task.shape,
        settings=settings,
        seed=seed,
        device=device,
        dev_score=dev_score,
        report=lambda step, numbers: None,
        class_weights=weights,
        pad_id=prepared.encode.tokenizer.token_to_id("[PAD]") or 0,
    )


def _reporter(
    log: MetricsLog, shown: Any, attempt: int, steps: int, rate: float
) -> Callable[[int, dict[str, Any]], None]:
    """Steps of one learning rate follow those of the one before, so that a curve of the run has no two ends."""

    def report(step: int, numbers: dict[str, Any]) -> None:
        log.log(attempt * steps + step, attempt=attempt, peak_learning_rate=rate, **numbers)
        shown.update(attempt * steps + step, loss=numbers["train_loss"])

    return report


def _folder(output: Path, rate: float) -> Path:
    """Belongs to the run's exact question: another question in the same folder starts afresh."""
    asked = hashlib.sha256((output / "run.json").read_bytes()).hexdigest()[:16]
    return output / "attempts" / f"{asked}-{rate:g}"
