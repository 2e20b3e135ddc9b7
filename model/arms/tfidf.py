"""The arm of TF-IDF over words and characters with logistic regression: what needs no network."""

from pathlib import Path
from typing import Self

import numpy as np

from amazon_electra.beam_jobs.core.errors import refuse
from amazon_electra.beam_jobs.model_folder.config import WORDS
from amazon_electra.beam_jobs.model_folder.words import Words
from amazon_electra.model.arms import register
from amazon_electra.model.arms.arm import Arm, Examples, Exported, Resources
from amazon_electra.model.arms.out_of_fold import group_examples, list_labels
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.request import Request


@register
class Tfidf(Arm):
    """Logistic regression on n-grams."""

    name = "tfidf"
    title = "TF-IDF"
    cross_validates = True
    words: Words

    def __init__(self, words: Words) -> None:
        self.words, self.facts = words, {}

    @classmethod
    def fit(
        cls, train: Examples, dev: Examples, request: Request, resources: Resources, output: Path
    ) -> Self:
        from amazon_electra.model.arms.regression import summarize_attempts
        from amazon_electra.model.arms.words import (  # scikit-learn: 2 CPU seconds
            fit_words,
            prepare_texts,
        )

        words, fitted = fit_words(
            prepare_texts(train),
            list_labels(train),
            len(request.task.labels),
            group_examples(train),
        )
        arm = cls(words)
        arm.out_of_fold = fitted.describe(train)
        arm.facts = summarize_attempts(fitted.tried) | {
            "n_train": len(train),
            "parameters": int(np.count_nonzero(fitted.model.coef_)),
            "device": "cpu",
        }
        return arm

    def predict_logits(self, examples: Examples) -> np.ndarray:
        from amazon_electra.model.arms.words import predict_logits

        return predict_logits(self.words, examples)

    def save(self, folder: Path) -> None:
        self.words.save(folder)

    @classmethod
    def load(cls, folder: Path, resources: Resources) -> Self:
        file = folder / WORDS
        # zipfile and NumPy raise many kinds
        with refuse(Exception, message="not a TF-IDF ({})", field="model", value=file):
            words = Words.load(file.read_bytes())
        return cls(words)

    def export(self, folder: Path, temperature: float, task: Task) -> Exported:
        self.words.divide(temperature).save(folder)
        return Exported("words")
