"""Say what a fine-tuning is asked for, and what its data are once they are tokenized."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from beam_jobs.job.errors import UserError
from model.config import FinetuningSettings
from model.finetuning import VERSION
from model.finetuning.features.examples import Example, Split, Task, load_examples
from model.finetuning.features.feature_cache import load_features
from model.finetuning.features.featurizer import Feature, Featurizer
from model.finetuning.features.packed_features import PackedFeatures
from model.finetuning.network import encoders
from model.finetuning.network.encoders import Head
from model.finetuning.start import Start
from model.finetuning.task_settings import check_for_task, choose_sampling


@dataclass(frozen=True)
class Request:
    """Everything that decides the result of a fine-tuning."""

    start: Start
    task: Task
    data: Path
    settings: FinetuningSettings
    seed: int = 0
    """Decides the head, the order, dropout and the training examples."""
    cache: Path | None = None
    """Folder of tokenized texts and teachers' outputs, which decides nothing."""

    def check(self) -> None:
        """Raise a UserError for what can be refused before anything is read."""
        check_for_task(self.settings, self.task, self.start.teacher is not None)
        if not 0 <= self.seed < 2**32:
            raise UserError(f"--seed {self.seed}: give a number from 0 to {2**32 - 1}")

    def describe(self) -> dict[str, Any]:
        """Return what run.json says of it."""
        return {
            "version": VERSION,
            "task": self.task.name,
            "seed": self.seed,
            "encoder": self.start.encoder,
            "architecture": self.start.architecture,
            "initializer_range": self.start.initializer_range,
            "teacher": str(self.start.teacher) if self.start.teacher else None,
            "data": str(self.data),
            "settings": asdict(self.settings),
        }

    def list_sources(self) -> list[Path]:
        """Return every local file that the result is made of."""
        named = (self.start.encoder, self.start.architecture, self.start.teacher)
        folders = [self.data, *(Path(name) for name in named if name)]
        return [f for folder in folders for f in (folder, *folder.rglob("*")) if f.exists()]


@dataclass(frozen=True)
class PreparedData:
    """Data ready for training, the same for every learning rate."""

    head: Head
    featurizer: Featurizer
    train: list[Example]
    dev: list[Example]
    train_features: Sequence[Feature]
    dev_features: list[Feature]
    left_out: dict[str, dict[str, int]]
    """Split → reason → number of examples that are not used."""
    warnings: list[str]


def prepare_data(request: Request) -> PreparedData:
    """Read and tokenize the train and dev splits; print the warnings too."""
    task, settings, seed = request.task, request.settings, request.seed
    left_out: dict[str, Counter[str]] = {"train": Counter(), "dev": Counter()}

    def load_split(split: Split) -> list[Example]:
        sampling = choose_sampling(settings, split, seed)
        return load_examples(task, request.data, split, sampling, left_out[split])

    train, dev = load_split("train"), load_split("dev")
    pools = task.shape in ("classification", "regression")
    folder = request.start.tokenizer_folder
    max_length, warning = encoders.choose_max_length(folder, task, settings)
    head = Head(
        task.name,
        task.shape,
        task.labels,
        request.start.choose_pooling(settings) if pools else "none",
        max_length,
        settings.stride,
        settings.clean,
    )
    featurizer = head.make_featurizer(encoders.load_tokenizer(folder))
    features = PackedFeatures(load_features(featurizer, train, request.cache))
    if task.shape == "span" and settings.empty_windows is not None:
        features.drop_empty_windows(settings.empty_windows, np.random.default_rng(seed))
    counts = {split: dict(by_reason) for split, by_reason in left_out.items()}
    dev_features = list(load_features(featurizer, dev, request.cache))
    warnings = [warning] if warning else []
    for told in warnings:
        print(f"warning: {told}", file=sys.stderr)
    return PreparedData(head, featurizer, train, dev, features, dev_features, counts, warnings)
