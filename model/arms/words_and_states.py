"""One logistic regression over TF-IDF and states, in a part for either, whose logits add up."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack

from amazon_electra.beam_jobs.model_folder.words import Words
from amazon_electra.model.arms import states as state_arm
from amazon_electra.model.arms import tfidf as word_arm
from amazon_electra.model.arms.out_of_fold import assign_folds
from amazon_electra.model.arms.phrases import MANY, add_scores, list_factors
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
ALONE_BELOW = MANY
"""Labels below which states alone and words alone are tried too: with 50 of them, states alone were
better. With more labels both lost in every sample, and the other arms have tried them."""


def fit_parts(
    texts: Sequence[str],
    states: np.ndarray,
    labels: np.ndarray,
    classes: int,
    groups: np.ndarray,
    said: np.ndarray,
) -> tuple[Words | None, state_arm.StateLayer | None, Fitted, dict[str, Any]]:
    """Return the part of the words, that of the states [texts, width], what was found, and what
    result.json says of it; None for a part that the cross-validation leaves out. `groups` stay in
    one fold; `said` are the directions of the classes' phrases, [classes, width] or none.
    """
    vectorizer, words, kept = word_arm.count_words(texts)
    every, width = add_scores(states, said), states.shape[1]
    scaler = state_arm.fit_scaler(every)
    standardized = scaler.transform(every).astype(np.float32)
    folds, tried = assign_folds(labels, groups), dict[tuple[float, float], list[Trial]]()
    own = labels[:MAX_EXAMPLES], classes, folds[:MAX_EXAMPLES]  # what is tried on

    def join(scale: float, factor: float) -> Any:
        """Return the features, of words alone with scale 0, of states alone with infinity."""
        if scale == 0:
            return words
        stressed = np.hstack(
            [standardized[:, :width], np.float32(factor) * standardized[:, width:]]
        )
        if scale == np.inf:
            return stressed
        return hstack([words, csr_matrix(stressed * np.float32(np.sqrt(scale)))], "csr")

    def factor_features(scale: float, factor: float) -> np.ndarray:
        of_words, of_states, of_scores = grams
        stressed = of_states + np.float32(factor**2) * of_scores
        return factor_gram(stressed if scale == np.inf else of_words + np.float32(scale) * stressed)

    def compare(scale: float, strengths: Sequence[float], factor: float = 0.0) -> None:
        features = factor_features(scale, factor)
        tried[scale, factor] = try_strengths(features, *own, strengths)

    def find_loss(way: tuple[float, float]) -> float:
        return min(one.loss for one, _ in tried[way])

    def find_strength(way: tuple[float, float]) -> float:
        return min((one for one, _ in tried[way]), key=lambda one: one.loss).C

    with limit_fit():
        parts = words, standardized[:, :width], standardized[:, width:]
        grams = [compute_gram(part[:MAX_EXAMPLES]) for part in parts]
        best = SCALE
        compare(SCALE, word_arm.STRENGTHS)
        for scale in LARGER:
            compare(scale, (find_strength((SCALE, 0)),))
            if find_loss((scale, 0)) > find_loss((best, 0)):
                break
            best = scale
        if best == SCALE:
            compare(SMALLER, (find_strength((SCALE, 0)),))
        if len(labels) < ALONE_BELOW:
            compare(0.0, word_arm.STRENGTHS)
            compare(np.inf, state_arm.STRENGTHS)
        for factor in list_factors(standardized[:, width:], labels):
            if len(labels) < MANY:
                compare(np.inf, state_arm.STRENGTHS, factor)
                compare(best, word_arm.STRENGTHS, factor)
            else:
                compare(best, (find_strength((best, 0)),), factor)
        scale, factor = best_way = min(tried, key=find_loss)
        if len(labels) <= MAX_EXAMPLES:
            rows = factor_features(scale, factor)
            fitted = finish_fit(rows, labels, classes, folds, tried[best_way])
            expand_model(fitted.model, rows, join(scale, factor))
        else:
            strengths = (find_strength(best_way),)
            fitted = fit_regression(join(scale, factor), labels, classes, strengths, groups)
    facts = summarize_attempts(fitted.tried) | {
        "scale": "states alone" if scale == np.inf else scale,
        "phrase_factor": factor,
        "scales": {f"{one:g}": find_loss((one, times)) for one, times in tried if not times},
    }
    weights, offsets = fitted.list_weights()
    n_words = 0 if scale == np.inf else words.shape[1]
    word_part = state_part = None
    if n_words:
        spread = word_arm.spread_weights(weights[:, :n_words], kept)
        word_part = Words(vectorizer, spread, offsets * (scale == 0))
    if scale:
        by = 1.0 if scale == np.inf else np.sqrt(scale)
        state_part = state_arm.fold_layer(scaler, weights[:, n_words:] * by, offsets, factor, said)
    return word_part, state_part, fitted, facts
