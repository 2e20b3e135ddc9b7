"""TF-IDF over words and characters with logistic regression: a scikit-learn pipeline in
`model.skops`.

N-grams are hashed, so that a model has no vocabulary: that of 4,000 reviews takes 97 MB and nine
seconds to load, and the one of a million more than the reviews.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline

from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.arms.regression import (
    Fitted,
    compute_logits,
    fit_regression,
    name_classes,
)
from amazon_electra.model.finetuning.examples import Example

N_GRAMS = (("word", (1, 2)), ("char_wb", (2, 5)))
"""Units and lengths. Characters within words add half a point of accuracy and 1.4 of macro-F1 on
4,661 reviews, and read what is misspelt.
"""
HASHED_FEATURES = 1 << 20
"""Columns of each kind of n-gram; 4,000 reviews have 330,000 distinct ones in all."""
STRENGTHS = (1.0, 4.0, 16.0)
"""Values of C that are tried: on 3,300 and 22,000 labels the best lies between them."""
LOG_ABOVE_BYTES = 2 << 30
"""Log the size of features that take more."""
AT_ONCE = 10_000
"""Texts that are predicted together."""


def prepare_texts(examples: Sequence[Example]) -> list[str]:
    """Return the text of each example, a second one after the first."""
    return [e.text if e.pair is None else f"{e.text} {e.pair}" for e in examples]


def fit_pipeline(
    texts: Sequence[str],
    labels: np.ndarray,
    classes: Sequence[str],
    groups: np.ndarray,
) -> tuple[Pipeline, Fitted]:
    """Return the pipeline of the best C, whose answers are class names, and what was tried.

    `labels` are indices of `classes`, `groups` stay in one fold.
    """
    vectorizer, features, kept = count_words(texts)
    fitted = fit_regression(features, labels, len(classes), STRENGTHS, groups)
    best = fitted.model
    best.coef_ = spread_weights(best.coef_, kept)
    best.n_features_in_ = best.coef_.shape[1]
    return make_pipeline(vectorizer, name_classes(best, classes, labels.ndim == 2)), fitted


def count_words(texts: Sequence[str]) -> tuple[FeatureUnion, Any, np.ndarray]:
    """Return the vectorizer of the texts, their features, sparse float32 [texts, kept], and the
    places of these among all.

    N-grams of a single text are left out: they would take two thirds of the time.
    """
    vectorizer = FeatureUnion(
        [
            (
                unit,
                make_pipeline(
                    HashingVectorizer(
                        analyzer=unit,
                        ngram_range=lengths,
                        n_features=HASHED_FEATURES,
                        alternate_sign=False,
                        norm=None,
                        dtype=np.float32,
                    ),
                    TfidfTransformer(sublinear_tf=True),
                ),
            )
            for unit, lengths in N_GRAMS
        ]
    )
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


def drop_addresses(pipeline: Pipeline) -> None:
    """Replace the vectorizers by fresh ones, so that equal pipelines are written in equal bytes."""
    # one that has read texts keeps an address in memory
    for _, part in pipeline[0].transformer_list:
        part.steps[0] = (part.steps[0][0], clone(part.steps[0][1]))


def predict_logits(
    pipeline: Pipeline, examples: Sequence[Example], classes: Sequence[str]
) -> np.ndarray:
    """Return float32 [examples, classes], in the order of `classes`."""
    logits = np.empty((len(examples), len(classes)), np.float32)
    for start in range(0, len(examples), AT_ONCE):
        texts = prepare_texts(examples[start : start + AT_ONCE])
        logits[start : start + AT_ONCE] = compute_logits(pipeline, texts, classes)
    return logits
