"""The Gram matrix of features, and its Cholesky factor in their place.

A ridge penalty sees features only through their inner products: a logistic regression on the rows
of L, where L·Lᵀ is the Gram matrix, predicts what one on the features does. L has a column for each
example, the features of 4,400 reviews 116,500.
"""

from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import issparse

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
