"""Logistic regression whose C and class weights are chosen by cross-validation."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from threadpoolctl import threadpool_limits

from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.model.arms.out_of_fold import FOLDS, OutOfFold, assign_folds, list_labels
from amazon_electra.model.evaluation.predict import choose_thresholds
from amazon_electra.model.evaluation.predictions import compute_log_loss
from amazon_electra.model.finetuning.examples import Example

MAX_EXAMPLES = 6_000
"""Most examples that are fitted so: their Gram matrix takes 0.14 GB."""
CELLS = 4
"""So many cells of the dense L take the time of one stored value of sparse features."""
FREQUENT = 0.05
"""A feature that more than this share of the examples has is multiplied as a dense column."""
ROWS = 500
"""Rows of the sparse product that are computed at once: most of its cells are filled."""
JITTER = 1e-3
"""This share of the diagonal's mean is added to the diagonal: in float32 the Gram matrix of
similar texts is not positive definite. It stands for a feature that one example has alone.
"""


def is_shorter(features: Any) -> bool:
    """Return whether a fit to L takes less time than one to the features [n, width]."""
    n = features.shape[0]
    values = CELLS * features.nnz if issparse(features) else features.size
    return n <= MAX_EXAMPLES and n * n < values


def compute_gram(features: Any) -> np.ndarray:
    """Return the inner products of features [n, width], sparse or dense: float32 [n, n]."""
    if not issparse(features):
        dense = np.asarray(features, np.float32)
        return np.asarray(dense @ dense.T)
    n, width = features.shape
    is_frequent = np.bincount(features.indices, minlength=width) > FREQUENT * n
    dense, rest = features[:, is_frequent].toarray(), features[:, ~is_frequent]
    gram, columns = dense @ dense.T, rest.T.tocsr()
    for start in range(0, n, ROWS):
        gram[start : start + ROWS] += (rest[start : start + ROWS] @ columns).toarray()
    return np.asarray(gram, np.float32)


def factor_gram(gram: np.ndarray) -> np.ndarray:
    """Return L, float32 [n, n], of a Gram matrix and JITTER."""
    lifted = gram.copy()
    lifted[np.diag_indices_from(lifted)] += np.float32(JITTER * gram.trace() / len(gram))
    factor = cholesky(lifted, lower=True, overwrite_a=True, check_finite=False)
    return np.ascontiguousarray(factor)


def expand_weights(weights: np.ndarray, factor: np.ndarray, features: Any) -> np.ndarray:
    """Return weights of the columns of L, [rows, n], as weights of the features, [rows, width]."""
    dual = solve_triangular(factor, weights.T, trans="T", lower=True, check_finite=False)
    return np.asarray((features.T @ dual).T)


STEPS = 200
"""Most iterations of the solver; L-BFGS needs 30 to 120, Newton's method 4 to 12."""
WORTH_BALANCING = 0.01
"""Take balanced classes if macro-F1 gains at least so much, and twice what accuracy loses: arms
are compared by accuracy too, which else differs more by this choice than by the arm."""
ABSENT = -30.0
"""Logit of a class that no training example has."""


@dataclass(frozen=True)
class Candidate:
    """One regression that was tried, with its figures on the held-out folds."""

    C: float
    class_weight: Literal["balanced"] | None
    loss: float
    macro_f1: float
    accuracy: float


Trial = tuple[Candidate, np.ndarray]
"""An attempt, and the logits of each example by the model that was fitted without its fold."""


@dataclass(frozen=True)
class Fitted:
    """The result of `fit_regression`."""

    model: LogisticRegression
    """The best candidate, fitted to all examples."""
    logits: np.ndarray
    """Float32 [n, classes]: of each example by the model that was fitted without its fold."""
    folds: np.ndarray
    """Int64 [n]."""
    tried: list[Candidate]
    """The best first."""

    def list_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weights [classes, width] and offsets [classes]; of two classes one half each, of a
        class that no example has none, and ABSENT.
        """
        rows, own = self.model.coef_, self.model.intercept_
        if len(rows) == 1:
            rows, own = np.concatenate([-rows / 2, rows / 2]), np.concatenate([-own / 2, own / 2])
        classes = self.logits.shape[1]
        weights = np.zeros((classes, rows.shape[1]), rows.dtype)
        offsets = np.full(classes, ABSENT)
        weights[self.model.classes_], offsets[self.model.classes_] = rows, own
        return weights, offsets

    def describe(self, examples: Sequence[Example]) -> OutOfFold:
        """Return the predictions of the examples that it was fitted to."""
        ids = [example.id for example in examples]
        return OutOfFold(ids, list_labels(examples), self.logits, self.folds)


def fit_regression(
    features: Any, labels: np.ndarray, classes: int, strengths: Sequence[float], groups: np.ndarray
) -> Fitted:
    """Return the regression of the C with the smallest cross-validated log-loss, fitted to all
    examples, and all that were tried. Features are [examples, width], sparse or dense; `groups`
    (group_examples) int64 [examples] stay in one fold. Where examples are few, L stands for the
    features.
    """
    folds = assign_folds(labels, groups)
    with limit_fit():
        factor = factor_gram(compute_gram(features)) if is_shorter(features) else None
        rows = features if factor is None else factor
        tried = try_strengths(rows, labels, classes, folds, strengths)
        fitted = finish_fit(rows, labels, classes, folds, tried)
        if factor is not None:
            expand_model(fitted.model, factor, features)
    return fitted


def expand_model(model: LogisticRegression, factor: np.ndarray, features: Any) -> None:
    """Replace the weights of the columns of L by weights of the features."""
    model.coef_ = expand_weights(model.coef_, factor, features)
    model.n_features_in_ = model.coef_.shape[1]


def try_strengths(
    features: Any, labels: np.ndarray, classes: int, folds: np.ndarray, strengths: Sequence[float]
) -> list[Trial]:
    """Return what was tried: one C after another from the smallest on, until the log-loss rises."""
    tried: list[Trial] = []
    before: dict[int, LogisticRegression] = {}
    with Progress(len(strengths), "values of C", "logistic regression") as shown:
        for strength in sorted(strengths):
            tried.append(cross_validate(features, labels, classes, folds, strength, None, before))
            shown.update(len(tried))
            if len(tried) > 1 and tried[-1][0].loss > tried[-2][0].loss:
                break
    return tried


def finish_fit(
    features: Any, labels: np.ndarray, classes: int, folds: np.ndarray, tried: Sequence[Trial]
) -> Fitted:
    """Return the best of what was tried, or that with balanced classes, fitted to all examples."""
    best = min(tried, key=lambda one: one[0].loss)
    balanced = cross_validate(features, labels, classes, folds, best[0].C, "balanced", {})
    others = [*tried, balanced]
    gained = balanced[0].macro_f1 - best[0].macro_f1
    lost = best[0].accuracy - balanced[0].accuracy
    if gained >= max(WORTH_BALANCING, 2 * lost):
        best = balanced
    attempt, logits = best
    model = fit_model(features, labels, attempt.C, attempt.class_weight)
    return Fitted(
        model, logits, folds, [attempt, *(one for one, _ in others if one is not attempt)]
    )


def fit_model(
    features: Any,
    labels: np.ndarray,
    strength: float,
    class_weight: Literal["balanced"] | None,
    weaker: LogisticRegression | None = None,
) -> LogisticRegression:
    """Return a regression fitted to classes, int [n], from the weights of a weaker one if there is
    one. For several classes, 0 or 1 [n, classes], it holds a row of weights for each, which is
    fitted by itself.
    """

    def fit(of: np.ndarray, rows: slice) -> LogisticRegression:
        # L-BFGS keeps 20 vectors as long as the weights: too long where there are n-grams
        model = LogisticRegression(
            C=strength,
            class_weight=class_weight,
            solver="newton-cg" if issparse(features) else "lbfgs",
            max_iter=STEPS,
            warm_start=weaker is not None,
        )
        if weaker:
            model.coef_, model.intercept_ = weaker.coef_[rows].copy(), weaker.intercept_[rows]
            model.classes_ = weaker.classes_ if labels.ndim == 1 else np.arange(2)
        return model.fit(features, of)

    if labels.ndim == 1:
        return fit(labels, slice(None))
    n, classes = labels.shape
    weights, offsets = np.zeros((classes, features.shape[1])), np.zeros(classes)
    for c, count in enumerate(labels.sum(0).tolist()):
        if 0 < count < n:
            one = fit(labels[:, c], slice(c, c + 1))
            weights[c], offsets[c] = one.coef_[0], one.intercept_[0]
        else:
            offsets[c] = np.log((count + 1) / (n - count + 1))  # rule of succession
    model = LogisticRegression(C=strength, class_weight=class_weight, max_iter=STEPS)
    model.coef_, model.intercept_, model.classes_ = weights, offsets, np.arange(classes)
    model.n_features_in_ = features.shape[1]
    return model


@contextmanager
def limit_fit() -> Iterator[None]:
    """Fit in one thread, as sums in another order give other weights, and without warnings."""
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def cross_validate(
    features: Any,
    labels: np.ndarray,
    classes: int,
    folds: np.ndarray,
    strength: float,
    class_weight: Literal["balanced"] | None,
    before: dict[int, LogisticRegression],
) -> Trial:
    """Return the figures of one C over the held-out folds, and the logits of each example by the
    model without its fold; `before` has the regressions of a weaker C, where those of this one
    begin.
    """
    logits = np.full((len(labels), classes), ABSENT, np.float32)
    for number in np.unique(folds):
        held_out, train = np.flatnonzero(folds == number), np.flatnonzero(folds != number)
        known = np.unique(labels[train])
        if labels.ndim == 1 and len(known) < 2:  # so few labels that the others are of one class
            logits[np.ix_(held_out, known)] = 0
            continue
        model = fit_model(
            features[train], labels[train], strength, class_weight, before.get(number)
        )
        before[number] = model
        decision = model.decision_function(features[held_out])
        own = expand_logits(decision, model.classes_, classes)
        if labels.ndim == 2:
            logits[held_out] = own
            continue
        unseen, top = np.setdiff1d(labels, model.classes_), own.max(1, keepdims=True)
        total = top + np.log(np.exp(own - top).sum(1, keepdims=True))
        own[:, unseen] = total - np.log(len(train) + 1)  # rule of succession
        logits[held_out] = own
    loss = compute_log_loss(logits, labels)
    answers = logits.argmax(1)
    if labels.ndim == 2:
        answers = logits >= choose_thresholds(logits, labels)
    found = f1_score(labels, answers, average="macro", zero_division=0)
    accuracy = float(accuracy_score(labels, answers))
    return Candidate(strength, class_weight, loss, float(found), accuracy), logits


def summarize_attempts(tried: Sequence[Candidate]) -> dict[str, Any]:
    """Return what result.json says of the regressions that were tried, the best first."""
    best = tried[0]
    return {
        "C": best.C,
        "class_weight": best.class_weight,
        "cross_validation": {
            "folds": FOLDS,
            **{name: getattr(best, name) for name in ("loss", "macro_f1", "accuracy")},
        },
        "tried": [asdict(attempt) for attempt in tried],
    }


def expand_logits(decision: np.ndarray, order: Sequence[int], classes: int) -> np.ndarray:
    """Return float32 [examples, classes] of scikit-learn's decision function, whose columns are the
    classes `order`, and which has one column for two classes.
    """
    if decision.ndim == 1:
        decision = np.stack([-decision / 2, decision / 2], 1)
    logits = np.full((len(decision), classes), ABSENT, np.float32)
    logits[:, list(order)] = decision
    return logits
