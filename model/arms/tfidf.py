"""The arm of TF-IDF over words and characters with logistic regression: what needs no network."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from amazon_electra.beam_jobs.core.model_folder import PIPELINE
from amazon_electra.model.arms import register
from amazon_electra.model.arms.arm import Arm, Exported, Resources
from amazon_electra.model.arms.out_of_fold import group_examples, list_labels
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.request import Request


@register
class Tfidf(Arm):
    name = "tfidf"
    title = "TF-IDF"
    description = "logistic regression on n-grams"
    cross_validates = True
    format = "skops"
    usage = """import skops.io

classifier = skops.io.load("THIS FOLDER/model.skops")
classifier.predict(["A lamp that broke on the first day."])"""

    def __init__(
        self, pipeline: Any, labels: Sequence[str], facts: dict[str, Any], folder: Path | None
    ) -> None:
        self.pipeline, self.labels, self.facts, self.folder = pipeline, labels, facts, folder

    @classmethod
    def fit(
        cls,
        train: Sequence[Example],
        dev: Sequence[Example],
        request: Request,
        resources: Resources,
        output: Path,
    ) -> Self:
        from amazon_electra.model.arms.regression import summarize_attempts
        from amazon_electra.model.arms.words import (  # scikit-learn: 2 CPU seconds
            fit_pipeline,
            prepare_texts,
        )

        labels = request.task.labels
        pipeline, fitted = fit_pipeline(
            prepare_texts(train), list_labels(train), labels, group_examples(train)
        )
        arm = cls(pipeline, labels, {}, None)
        arm.out_of_fold = fitted.describe(train)
        arm.facts = summarize_attempts(fitted.tried) | {
            "n_train": len(train),
            "parameters": int(np.count_nonzero(pipeline[-1].coef_)),
            "device": "cpu",
        }
        return arm

    def predict_logits(self, examples: Sequence[Example]) -> np.ndarray:
        from amazon_electra.model.arms.words import predict_logits

        return predict_logits(self.pipeline, examples, self.labels)

    def save(self, folder: Path) -> None:
        from amazon_electra.model.arms.regression import save_pipeline
        from amazon_electra.model.arms.words import drop_addresses

        drop_addresses(self.pipeline)
        save_pipeline(self.pipeline, folder)

    @classmethod
    def load(cls, folder: Path, resources: Resources) -> Self:
        from amazon_electra.model.arms.regression import load_pipeline
        from amazon_electra.model.finetuning.network import read_task_head

        labels = read_task_head(folder).labels
        return cls(load_pipeline(folder, len(labels)), labels, {}, folder)

    def export(
        self, folder: Path, examples: Sequence[Example], temperature: float, task: Task
    ) -> Exported:
        if self.folder is None:
            self.save(folder)
        else:
            shutil.copyfile(self.folder / PIPELINE, folder / PIPELINE)
        return Exported(temperature)
