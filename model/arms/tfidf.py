"""The arm of TF-IDF over words and characters with logistic regression: what needs no network."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import numpy as np

from amazon_electra.model.arms import register
from amazon_electra.model.arms.arm import Arm, Exported, Resources
from amazon_electra.model.arms.out_of_fold import group_examples, list_labels
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.request import Request


@register
class Tfidf(Arm):
    """Logistic regression on n-grams."""

    name = "tfidf"
    title = "TF-IDF"
    cross_validates = True
    format = "skops"

    def __init__(self, pipeline: Any, labels: Sequence[str], facts: dict[str, Any]) -> None:
        self.pipeline, self.labels, self.facts = pipeline, labels, facts

    @classmethod
    def fit(
        cls,
        train: Sequence[Example],
        dev: Sequence[Example],
        request: Request,
        resources: Resources,
        output: Path,
    ) -> Self:
        from amazon_electra.model.arms.regression import read_weights, summarize_attempts
        from amazon_electra.model.arms.words import (  # scikit-learn: 2 CPU seconds
            fit_pipeline,
            prepare_texts,
        )

        labels = request.task.labels
        pipeline, fitted = fit_pipeline(
            prepare_texts(train), list_labels(train), labels, group_examples(train)
        )
        arm = cls(pipeline, labels, {})
        arm.out_of_fold = fitted.describe(train)
        arm.facts = summarize_attempts(fitted.tried) | {
            "n_train": len(train),
            "parameters": int(np.count_nonzero(read_weights(pipeline[-1])[0])),
            "device": "cpu",
        }
        return arm

    @property
    def word_pipeline(self) -> Any:
        return self.pipeline

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
        return cls(load_pipeline(folder), labels, {})

    def export(self, folder: Path, temperature: float, task: Task) -> Exported:
        from sklearn.pipeline import make_pipeline

        from amazon_electra.model.arms.regression import list_regressions

        *before, regression = (step for _, step in self.pipeline.steps)
        calibrated = deepcopy(regression)
        for one in list_regressions(calibrated):
            one.coef_ = one.coef_ / np.float32(temperature)
            one.intercept_ = one.intercept_ / np.float32(temperature)
        Tfidf(make_pipeline(*before, calibrated), self.labels, {}).save(folder)
        return Exported()
