"""Fits what a user would otherwise take to the texts of tests/bench/arms.py, which calls it with
a Python of its own environment: `uv pip install setfit==1.2.0 'model2vec[distill,train]==0.10.0'`,
or `'autogluon.tabular[catboost,lightgbm,xgboost]==1.6.3'`.

    python tests/bench/peers.py TOOL TEXTS.json OUTPUT.json --encoder FOLDER

TEXTS.json has `train`, `labels` (0, 1, …), `test` and `seed`; OUTPUT.json gets the probabilities of
each test text, [n, classes], the CPU seconds and the versions of the packages.
"""

import argparse
import json
import os
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np

ITERATIONS = 20
"""SetFit's pairs of each text: of its paper (Tunstall et al. 2022)."""
PACKAGES = ("autogluon.tabular", "scikit-learn", "setfit", "model2vec", "torch", "transformers")


def score(model: Any, texts: Any, labels: Any) -> float:
    """Return minus the log-loss; a fold may lack some of the classes, at most 200."""
    found = np.full((len(labels), 200), 1e-9)
    found[:, model.classes_] = np.maximum(model.predict_proba(texts), 1e-9)
    return float(np.log(found[np.arange(len(labels)), labels]).mean())


def fit_scikit_learn(given: dict[str, Any], encoder: str) -> np.ndarray:
    """TF-IDF of words, with or without characters, and a regression, chosen by five folds."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import FeatureUnion, Pipeline

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True)
    features = FeatureUnion([("words", words), ("letters", letters)])
    grid = {
        "features__letters": [letters, "drop"],
        "fit__C": [1, 10, 100],
        "fit__class_weight": [None, "balanced"],
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=given["seed"])
    with tempfile.TemporaryDirectory() as folder:
        parts = [("features", features), ("fit", LogisticRegression(max_iter=2_000))]
        model = Pipeline(parts, memory=folder)
        search = GridSearchCV(model, grid, scoring=score, cv=folds)
        search.fit(given["train"], given["labels"])
        return search.predict_proba(given["test"])


def fit_setfit(given: dict[str, Any], encoder: str) -> np.ndarray:
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(encoder)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_iterations=ITERATIONS,
            max_length=128,
            seed=given["seed"],
            report_to="none",
            save_strategy="no",
        )
        data = Dataset.from_dict({"text": given["train"], "label": given["labels"]})
        Trainer(model=model, args=arguments, train_dataset=data).train()
    return model.predict_proba(given["test"], as_numpy=True)


def fit_model2vec(given: dict[str, Any], encoder: str) -> np.ndarray:
    """A static model distilled from the encoder, its vectors and head trained on the labels."""
    from model2vec.distill import distill
    from model2vec.train import StaticModelForClassification

    model = StaticModelForClassification.from_static_model(model=distill(encoder))
    model.fit(given["train"], given["labels"], random_seed=given["seed"], device="cpu")
    found = model.predict_proba(given["test"])
    return found[:, np.argsort([int(one) for one in model.classes])]


def fit_static_regression(given: dict[str, Any], encoder: str) -> np.ndarray:
    """The vectors of that static model as they are, and a logistic regression."""
    from model2vec.distill import distill
    from sklearn.linear_model import LogisticRegressionCV

    static = distill(encoder)
    model = LogisticRegressionCV(scoring=score, max_iter=2_000)
    model.fit(static.encode(given["train"]), given["labels"])
    return model.predict_proba(static.encode(given["test"]))


def fit_autogluon(given: dict[str, Any], encoder: str) -> np.ndarray:
    """Its default models on n-grams of the texts, averaged by log-loss, ten minutes at most."""
    from autogluon.tabular import TabularPredictor
    from pandas import DataFrame

    train = DataFrame({"text": given["train"], "label": given["labels"]})
    with tempfile.TemporaryDirectory() as folder:
        model = TabularPredictor("label", eval_metric="log_loss", path=folder, verbosity=0)
        model.fit(train, time_limit=600)
        return model.predict_proba(DataFrame({"text": given["test"]})).to_numpy()


TOOLS = {
    "AutoGluon": fit_autogluon,
    "scikit-learn": fit_scikit_learn,
    "SetFit": fit_setfit,
    "model2vec": fit_model2vec,
    "model2vec + regression": fit_static_regression,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("texts", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--encoder", help="sentence-transformers folder")
    arguments = parser.parse_args()
    texts = json.loads(arguments.texts.read_text(encoding="utf-8"))
    probabilities = TOOLS[arguments.tool](texts, arguments.encoder)
    result = {
        "probabilities": probabilities.tolist(),
        "cpu_seconds": round(sum(os.times()[:4]), 1),
        "versions": {d.name: d.version for d in distributions() if d.name in PACKAGES},
    }
    arguments.output.write_text(json.dumps(result), encoding="utf-8")
