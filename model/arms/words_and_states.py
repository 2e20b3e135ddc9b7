"""One logistic regression over TF-IDF and states, in a part for either, whose logits add up."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack

from amazon_electra.beam_jobs.model_folder.words import Words
from amazon_electra.model.arms import states as state_arm
from amazon_electra.model.arms import tfidf as word_arm
from amazon_electra.model.arms.out_of_fold import assign_folds
from amazon_electra.model.arms.regression import (
    MAX_EXAMPLES,
    Fitted,
    Trial,
    compute_gram,
    expand_model,
    factor_gram,
    finish_fit,
    fit_regression,
    limit_fit,
    summarize_attempts,
    try_strengths,
)

SCALE, SMALLER, LARGER = 1e-3, 2.5e-4, (4e-3, 1.6e-2)
"""Squares of the factor of the standardized states beside the TF-IDF, whose parts have norm 1. The
first is tried with every C, the others with the best one: larger ones while they are better, a
smaller one if none is.
"""
ALONE_BELOW = 1_000
"""Labels below which states alone and words alone are tried too: with 50 of them, states alone were
better. With more labels both lost in every sample, and the other arms have tried them."""


def fit_parts(
    texts: Sequence[str], states: np.ndarray, labels: np.ndarray, classes: int, groups: np.ndarray
) -> tuple[Words | None, state_arm.Layer | None, Fitted, dict[str, Any]]:
    """Return the part of the words, that of the states [texts, width], what was found, and what
    result.json says of it; None for a part that the cross-validation leaves out. `groups` stay in
    one fold.
    """
    vectorizer, words, kept = word_arm.count_words(texts)
    scaler = state_arm.fit_scaler(states)
    standardized = scaler.transform(states).astype(np.float32)
    folds, tried = assign_folds(labels, groups), dict[float, list[Trial]]()
    own = labels[:MAX_EXAMPLES], classes, folds[:MAX_EXAMPLES]  # what scales are tried on

    def join(scale: float) -> Any:
        """Return the features, of words alone with 0, of states alone with infinity."""
        if scale == 0:
            return words
        if scale == np.inf:
            return standardized
        return hstack([words, csr_matrix(standardized * np.float32(np.sqrt(scale)))], "csr")

    def factor(scale: float) -> np.ndarray:
        return factor_gram(grams[1] if scale == np.inf else grams[0] + np.float32(scale) * grams[1])

    def compare(scale: float, strengths: Sequence[float]) -> None:
        tried[scale] = try_strengths(factor(scale), *own, strengths)

    def find_loss(scale: float) -> float:
        return min(one.loss for one, _ in tried[scale])

    def find_strength(scale: float) -> float:
        return min((one for one, _ in tried[scale]), key=lambda one: one.loss).C

    with limit_fit():
        grams = [compute_gram(part[:MAX_EXAMPLES]) for part in (words, standardized)]
        best = SCALE
        compare(SCALE, word_arm.STRENGTHS)
        for scale in LARGER:
            compare(scale, (find_strength(SCALE),))
            if find_loss(scale) > find_loss(best):
                break
            best = scale
        if best == SCALE:
            compare(SMALLER, (find_strength(SCALE),))
        if len(labels) < ALONE_BELOW:
            compare(0.0, word_arm.STRENGTHS)
            compare(np.inf, state_arm.STRENGTHS)
        best = min(tried, key=find_loss)
        if len(labels) <= MAX_EXAMPLES:
            rows = factor(best)
            fitted = finish_fit(rows, labels, classes, folds, tried[best])
            expand_model(fitted.model, rows, join(best))
        else:
            strengths = (find_strength(best),)
            fitted = fit_regression(join(best), labels, classes, strengths, groups)
    facts = summarize_attempts(fitted.tried) | {
        "scale": "states alone" if best == np.inf else best,
        "scales": {f"{scale:g}": find_loss(scale) for scale in tried},
    }
    weights, offsets = fitted.list_weights()
    n_words = 0 if best == np.inf else words.shape[1]
    word_part = state_part = None
    if n_words:
        spread = word_arm.spread_weights(weights[:, :n_words], kept)
        word_part = Words(vectorizer, spread, offsets * (best == 0))
    if best:
        by = 1.0 if best == np.inf else np.sqrt(best)
        state_part = state_arm.fold_scaler(scaler, weights[:, n_words:] * by, offsets)
    return word_part, state_part, fitted, facts
