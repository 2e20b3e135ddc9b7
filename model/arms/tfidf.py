"""TF-IDF of words and characters with logistic regression; n-grams are hashed, to load fast."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from amazon_electra.beam_jobs.core.errors import refuse
from amazon_electra.beam_jobs.model_folder.config import WORDS
from amazon_electra.beam_jobs.model_folder.words import (
    HASHED_FEATURES,
    N_GRAMS,
    Words,
    build_vectorizer,
)
from amazon_electra.model.arms import register
from amazon_electra.model.arms.arm import Arm, Examples, Exported, Resources
from amazon_electra.model.arms.out_of_fold import group_examples, list_labels
from amazon_electra.model.finetuning.examples import Example, Task
from amazon_electra.model.finetuning.request import Request

if TYPE_CHECKING:  # scikit-learn: 2 CPU seconds
    from amazon_electra.model.arms.regression import Fitted

STRENGTHS = (1.0, 4.0, 16.0)
"""Values of C that are tried: on 3,300 and 22,000 labels the best lies between them."""
AT_ONCE = 10_000
"""Texts that are predicted together."""


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

        labels, classes = list_labels(train), len(request.task.labels)
        words, fitted = fit_words(prepare_texts(train), labels, classes, group_examples(train))
        arm = cls(words)
        arm.out_of_fold = fitted.describe(train)
        arm.facts = summarize_attempts(fitted.tried) | {
            "n_train": len(train),
            "parameters": int(np.count_nonzero(fitted.model.coef_)),
            "device": "cpu",
        }
        return arm

    def predict_logits(self, examples: Examples) -> np.ndarray:
        logits = np.empty((len(examples), len(self.words.offsets)), np.float32)
        for start in range(0, len(examples), AT_ONCE):
            texts = prepare_texts(examples[start : start + AT_ONCE])
            logits[start : start + AT_ONCE] = self.words.compute_logits(texts)
        return logits

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


def prepare_texts(examples: Sequence[Example]) -> list[str]:
    """Return the text of each example, a second one after the first."""
    return [e.text if e.pair is None else f"{e.text} {e.pair}" for e in examples]


def fit_words(
    texts: Sequence[str], labels: np.ndarray, classes: int, groups: np.ndarray
) -> tuple[Words, "Fitted"]:
    """Return the regression of the best C, and what was tried; `groups` stay in one fold."""
    from amazon_electra.model.arms.regression import fit_regression

    vectorizer, features, kept = count_words(texts)
    fitted = fit_regression(features, labels, classes, STRENGTHS, groups)
    weights, offsets = fitted.list_weights()
    return Words(vectorizer, spread_weights(weights, kept), offsets), fitted


def count_words(texts: Sequence[str]) -> tuple[Any, Any, np.ndarray]:
    """Return the vectorizer of the texts, their features, sparse float32 [texts, kept], and the
    places of these among all. N-grams of a single text are left out: they would take two thirds of
    the time.
    """
    vectorizer = build_vectorizer()
    features = vectorizer.fit_transform(texts).tocsr()
    kept = np.flatnonzero(np.bincount(features.indices, minlength=features.shape[1]) > 1)
    return vectorizer, features[:, kept], kept


def spread_weights(weights: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return weights of all hashed n-grams: those of the kept ones, [rows, kept], and 0."""
    spread = np.zeros((len(weights), len(N_GRAMS) * HASHED_FEATURES), np.float32)
    spread[:, kept] = weights
    return spread
