"""The model folder as `mlflow models serve` runs it: MLflow copies this file beside the folder, so
it imports nothing of this package.

It takes a DataFrame with a column `text`, or a list of texts, and returns a DataFrame: `label` and
the probability of each class.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext

BATCH = 32
Score = Callable[[list[str]], np.ndarray]
"""Texts → probabilities [texts, classes], before the temperature."""


class ReviewClassifier(PythonModel):
    """Loads a folder of model.export with transformers or skops."""

    def load_context(self, context: PythonModelContext) -> None:
        folder = Path(context.artifacts["model"])
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.labels = [config["id2label"][str(place)] for place in range(len(config["id2label"]))]
        self.temperature = float(config["temperature"])
        self.score: Score = (
            load_pipeline(folder, self.labels)
            if config["amazon_electra"]["kind"] == "tfidf"
            else load_network(folder, self.labels)
        )

    def predict(
        self, context: PythonModelContext, model_input: Any, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        texts = read_texts(model_input)
        scores = self.score(texts) if texts else np.zeros((0, len(self.labels)))
        logits = np.log(np.maximum(scores, 1e-30)) / self.temperature
        powers = np.exp(logits - logits.max(1, keepdims=True))
        probabilities = powers / powers.sum(1, keepdims=True)
        answers = [self.labels[place] for place in scores.argmax(1)]
        return pd.DataFrame(
            {"label": answers, **dict(zip(self.labels, probabilities.T, strict=True))}
        )


def read_texts(given: Any) -> list[str]:
    """Return the texts of what a caller sends; ValueError where there are none."""
    if isinstance(given, pd.DataFrame):
        if "text" not in given and len(given.columns) != 1:
            raise ValueError(f"no column text among {', '.join(map(str, given.columns))}")
        given = given["text"] if "text" in given else given.iloc[:, 0]
    if isinstance(given, dict):
        given = given["text"]
    return [str(text) for text in ([given] if isinstance(given, str) else given)]


def load_network(folder: Path, labels: list[str]) -> Score:
    """Return what scores texts by transformers' own pipeline."""
    from transformers import pipeline

    classify: Any = pipeline("text-classification", model=str(folder), top_k=None)

    def score(texts: list[str]) -> np.ndarray:
        found = classify(texts, truncation=True, batch_size=BATCH)
        by_label = [{one["label"]: one["score"] for one in row} for row in found]
        return np.array([[row[label] for label in labels] for row in by_label], np.float64)

    return score


def load_pipeline(folder: Path, labels: list[str]) -> Score:
    """Return what scores texts by a scikit-learn pipeline."""
    import skops.io

    pipeline = skops.io.load(folder / "model.skops")
    places = [labels.index(str(name)) for name in pipeline.classes_]

    def score(texts: list[str]) -> np.ndarray:
        probabilities = np.zeros((len(texts), len(labels)))
        probabilities[:, places] = pipeline.predict_proba(texts)
        return probabilities

    return score


mlflow.models.set_model(ReviewClassifier())
