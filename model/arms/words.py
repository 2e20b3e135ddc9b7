"""TF-IDF over words and characters with logistic regression. N-grams are hashed, so that a model
has no vocabulary: that of 4,000 reviews takes 97 MB and nine seconds to load, and the one of a
million more than the reviews.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.beam_jobs.model_folder.words import (
    HASHED_FEATURES,
    N_GRAMS,
    Words,
    build_vectorizer,
)
from amazon_electra.model.arms.regression import Fitted, fit_regression
from amazon_electra.model.finetuning.examples import Example

STRENGTHS = (1.0, 4.0, 16.0)
"""Values of C that are tried: on 3,300 and 22,000 labels the best lies between them."""
LOG_ABOVE_BYTES = 2 << 30
"""Log the size of features that take more."""
AT_ONCE = 10_000
"""Texts that are predicted together."""


def prepare_texts(examples: Sequence[Example]) -> list[str]:
    """Return the text of each example, a second one after the first."""
    return [e.text if e.pair is None else f"{e.text} {e.pair}" for e in examples]


def fit_words(
    texts: Sequence[str], labels: np.ndarray, classes: int, groups: np.ndarray
) -> tuple[Words, Fitted]:
    """Return the regression of the best C, and what was tried; `groups` stay in one fold."""
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
    size = sum(part.nbytes for part in (features.data, features.indices, features.indptr))
    if size > LOG_ABOVE_BYTES:
        print(
            f"TF-IDF: the features of {len(texts):,} labels take {size / 1e9:.1f} GB of memory; "
            "finetuning.labels (of model.finetune n_train) caps the labels",
            file=sys.stderr,
        )
    kept = np.flatnonzero(np.bincount(features.indices, minlength=features.shape[1]) > 1)
    return vectorizer, features[:, kept], kept


def spread_weights(weights: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return weights [rows, kept] as those of all hashed n-grams, of which the others have 0."""
    spread = np.zeros((len(weights), len(N_GRAMS) * HASHED_FEATURES), np.float32)
    spread[:, kept] = weights
    return spread


def predict_logits(words: Words, examples: Sequence[Example]) -> np.ndarray:
    """Return float32 [examples, classes]."""
    logits = np.empty((len(examples), len(words.offsets)), np.float32)
    for start in range(0, len(examples), AT_ONCE):
        texts = prepare_texts(examples[start : start + AT_ONCE])
        logits[start : start + AT_ONCE] = words.compute_logits(texts)
    return logits
