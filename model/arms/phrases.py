"""Classes in words: short texts that say a class, as a writer titles a review of it.

The states of an encoder that was adapted by contrast lie near those of their titles. So a class
lies in the direction of the states of its phrases, which tells reviews apart without a label.
"""

from collections.abc import Sequence

import numpy as np

FACTORS, FACTOR_OF_MANY = (3.0, 10.0, 30.0), 10.0
"""Of a class's standardized score beside the standardized states: a regression pays less for what
is larger. Each is tried with every C; from MANY labels on one, with the best C and beside words.
"""
MANY = 1_000
SURE = 3.0
"""Standard errors by which phrases must separate the classes; meaningless ones seem to once in a
thousand samples. The folds alone are not enough: with 40 labels they took such phrases in two
of eight samples, at a loss of 17 points."""


def list_factors(scores: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """Return the factors to try besides 0 of the standardized scores [n, classes]; none if they do
    not tell apart the labels, [n] or 0 and 1 [n, classes].
    """
    n, classes = scores.shape
    has = labels if labels.ndim == 2 else labels[:, None] == np.arange(classes)
    agrees = ((has - has.mean(0)) * scores).sum(1)
    if agrees.mean() <= SURE * agrees.std() / np.sqrt(n):
        return ()
    return FACTORS if n < MANY else (FACTOR_OF_MANY,)


def take_directions(states: np.ndarray, width: int) -> np.ndarray:
    """Return the last layer of states [texts, layers · width], which contrast compares, at length
    1.
    """
    last = states[:, -width:]
    return np.asarray(last / np.linalg.norm(last, axis=1, keepdims=True))


def average_phrases(directions: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return the mean direction of each class, [classes, width], of those of its phrases, which
    stand one class after another; `sizes` has how many each class has.
    """
    return np.stack([own.mean(0) for own in np.split(directions, np.cumsum(sizes)[:-1])])


def add_scores(states: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return states with the score of each class after them: the mean cosine of the text and the
    phrases. `classes` are their directions [classes, width].
    """
    return np.hstack([states, take_directions(states, classes.shape[1]) @ classes.T])


def fold_scores(weights: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return weights [rows, layers · width + classes] of states and scores as weights [rows, layers
    · width + width] of states and their directions.
    """
    scores = len(classes)
    split = weights.shape[1] - scores
    return np.hstack([weights[:, :split], weights[:, split:] @ classes])
