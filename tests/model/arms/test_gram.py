"""A regression on the Cholesky factor of the Gram matrix is the one on the features."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from amazon_electra.model.arms import regression
from amazon_electra.model.arms.regression import fit_regression


def draw_words(n: int = 120, width: int = 900) -> tuple[csr_matrix, np.ndarray]:
    """Return sparse rows of norm 1, some columns frequent, and one of three classes of each."""
    draw = np.random.default_rng(0)
    counts = draw.poisson(np.r_[np.full(20, 1.0), np.full(width - 20, 0.02)], (n, width))
    counts[60] = counts[61]  # a text that is there twice
    rows = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    labels = np.digitize(rows[:, :5].sum(1) - rows[:, 5:10].sum(1), (-0.2, 0.2))
    return csr_matrix(rows, dtype=np.float32), labels


@pytest.mark.parametrize("limit", [6_000, 10])
def test_few_examples_give_the_features_regression(monkeypatch, limit):
    monkeypatch.setattr(regression, "MAX_EXAMPLES", limit)
    features, labels = draw_words()
    assert regression.is_shorter(features) == (limit > 120)
    fitted = fit_regression(features, labels, 3, (1.0,), np.arange(120))
    plain = LogisticRegression(C=1.0, class_weight=fitted.tried[0].class_weight, tol=1e-6)
    wanted = plain.fit(features.toarray(), labels).decision_function(features)
    assert np.allclose(fitted.model.decision_function(features), wanted, atol=0.02)
    assert fitted.model.coef_.shape == (3, 900)


def test_a_class_of_several_has_its_row():
    features, labels = draw_words()
    tags = np.stack([labels == 0, labels > 0], 1).astype(int)
    fitted = fit_regression(features, tags, 2, (1.0, 4.0), np.arange(120))
    assert fitted.model.coef_.shape == (2, 900)
    assert np.allclose(fitted.model.coef_[0], -fitted.model.coef_[1], atol=0.01)


def test_c_grows_while_the_loss_falls():
    draw = np.random.default_rng(0)
    features, labels = draw.normal(size=(200, 50)), draw.integers(0, 2, 200)
    fitted = fit_regression(features, labels, 2, (10.0, 0.0001, 0.1), np.arange(200))
    assert {one.C for one in fitted.tried} == {0.0001, 0.1}
