"""Our metrics equal scikit-learn's, scipy's and seqeval's, also on resampled examples."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from amazon_electra.model.evaluation.metrics import (
    METRICS,
    compute_metric,
    count_confusions,
    rank_dev_metrics,
)
from amazon_electra.model.evaluation.predictions import (
    Predictions,
    read_predictions,
    write_predictions,
)


def classes(n=300, k=4, seed=0) -> Predictions:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, k, n)
    probabilities = generator.dirichlet(np.ones(k), n) + 0.5 * np.eye(k)[labels]
    probabilities = (probabilities / probabilities.sum(1, keepdims=True)).astype(np.float32)
    return Predictions(
        ids=[str(i) for i in range(n)],
        labels=labels.tolist(),
        predictions=probabilities.argmax(1).tolist(),
        loss=-np.log(probabilities[np.arange(n), labels]).astype(float),
        probabilities=probabilities,
        n_classes=k,
    )


def numbers(n=200) -> Predictions:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 6, n).astype(float)
    predictions = labels + generator.normal(0, 2, n)
    ids, loss = [str(i) for i in range(n)], (predictions - labels) ** 2
    return Predictions(ids, labels.tolist(), predictions.tolist(), loss)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("accuracy", sk.accuracy_score),
        ("macro_f1", lambda y, p: sk.f1_score(y, p, average="macro")),
        ("matthews", sk.matthews_corrcoef),
        ("mae", sk.mean_absolute_error),
        ("within_one", lambda y, p: np.mean(np.abs(np.subtract(y, p)) <= 1)),
        ("kappa", lambda y, p: sk.cohen_kappa_score(y, p, weights="quadratic")),
        ("pearson", lambda y, p: stats.pearsonr(y, p).statistic),
        ("spearman", lambda y, p: stats.spearmanr(y, p).statistic),
        ("mse", sk.mean_squared_error),
    ],
)
@pytest.mark.parametrize("rows", [300, 3], ids=["all", "not of every class"])
def test_of_predictions(name, reference, rows):
    made = numbers(200) if name in ("pearson", "spearman", "mse") else classes()
    said = made.take_rows(np.arange(min(rows, len(made.ids))))
    assert compute_metric(name, said) == pytest.approx(reference(said.labels, said.predictions))
    if made.n_classes:
        loss = sk.log_loss(said.labels, said.probabilities, labels=range(4))
        assert compute_metric("loss", said) == pytest.approx(loss, rel=1e-4)


def test_calibration_errors_of_different_bins_do_not_cancel():
    """Too sure at 0.95, not sure enough at 0.55; the last bin has what is certain."""
    confidence = np.array([0.95, 0.55, 1.0], dtype=np.float32)
    probabilities = np.stack([confidence, 1 - confidence], 1)
    made = classes(n=3, k=2)
    said = replace(made, labels=[1, 0, 0], predictions=[0] * 3, probabilities=probabilities)
    assert compute_metric("ece", said) == pytest.approx((0.95 + 0.45) / 3)


@pytest.mark.parametrize("name", ["accuracy", "macro_f1", "matthews", "loss", "ece", "pearson"])
def test_weights_are_the_same_as_repeating_examples(name):
    said, metric = numbers() if name == "pearson" else classes(), METRICS[name]
    rows = np.random.default_rng(2).integers(0, len(said.ids), len(said.ids))
    weights = np.bincount(rows, minlength=len(said.ids))
    expected = metric.compute(said.take_rows(rows))
    assert metric.value(weights @ metric.columns(said)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"accuracy": 0.8, "loss": 9.0}, {"accuracy": 0.7, "loss": 0.1}),
        ({"accuracy": 0.8, "loss": 0.3}, {"accuracy": 0.8, "loss": 0.4}),
        ({"f1": 0.1}, {"f1": np.nan}),
        ({"f1": 0.1, "loss": 5.0}, {"f1": 0.1, "loss": np.nan}),
        ({"f1": 0.0, "loss": 5.0}, {}),
    ],
)
def test_the_first_metric_decides_then_the_loss(better, worse):
    assert rank_dev_metrics(better) > rank_dev_metrics(worse)


def test_confusion_has_labels_down():
    said = classes()
    assert count_confusions(said) == sk.confusion_matrix(said.labels, said.predictions).tolist()


def test_predictions_survive_the_file(tmp_path):
    said = classes(n=20)
    write_predictions(said, tmp_path / "p.parquet")
    back = read_predictions(tmp_path / "p.parquet")
    for name in ("ids", "labels", "predictions", "n_classes"):
        assert getattr(back, name) == getattr(said, name)
    assert np.array_equal(back.probabilities, said.probabilities)
