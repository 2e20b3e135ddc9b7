"""The model folder as `mlflow models serve` runs it: MLflow copies this file and model_folder.py of
beam_jobs.core beside the folder, so it imports nothing else of this package.

It takes a column `text` (a DataFrame; over HTTP a list too) and returns a DataFrame with a row for
each text: `label` (of a multi-label model a list), `probabilities` ({label: probability}) and
`reason`. A value that is no review has a reason and neither of the others, as in a file of scores.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from mlflow.pyfunc import PythonModel, PythonModelContext

try:
    import model_folder  # MLflow's copy
except ImportError:  # while MLflow makes the copy
    from amazon_electra.beam_jobs.core import model_folder

BATCH = 32
Score = Callable[[list[str]], np.ndarray]
"""Texts → probabilities [texts, classes], before the temperature."""


class ReviewClassifier(PythonModel):
    """Loads a folder of model.export with transformers, ONNX Runtime or skops."""

    def load_context(self, context: PythonModelContext) -> None:
        folder = Path(context.artifacts["model"])
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.labels = [config["id2label"][str(place)] for place in range(len(config["id2label"]))]
        self.temperature = float(config["temperature"])
        model_folder.check_labels(self.labels)
        model_folder.check_temperature(self.temperature)
        self.is_multilabel = config.get("problem_type") == model_folder.MULTILABEL
        self.thresholds = np.array(config["amazon_electra"].get("thresholds") or [])
        self.score = load_score(folder, config, self.labels)
        self.score([model_folder.PROBE])

    def predict(
        self, context: PythonModelContext, model_input: Any, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        reviews = [model_folder.read_review(value) for value in read_values(model_input)]
        answers = [
            {"label": None, "probabilities": None, "reason": reason or None}
            for _, reason in reviews
        ]
        texts = {place: text for place, (text, reason) in enumerate(reviews) if not reason}
        if texts:
            found = self.score(list(texts.values()))
            probabilities = temper(found, self.temperature, self.is_multilabel)
            chosen = probabilities.argmax(1).tolist()
            for place, row, answer in zip(texts, probabilities.tolist(), chosen, strict=True):
                best: Any = self.labels[answer]
                if self.is_multilabel:
                    best = [self.labels[c] for c in np.flatnonzero(row >= self.thresholds)]
                answers[place]["label"] = best
                answers[place]["probabilities"] = dict(zip(self.labels, row, strict=True))
        return pd.DataFrame(answers, columns=["label", "probabilities", "reason"], dtype=object)


def temper(probabilities: np.ndarray, temperature: float, is_multilabel: bool) -> np.ndarray:
    """Return probabilities [texts, classes] of logits that are divided by a temperature."""
    logits = model_folder.take_logarithms(probabilities, is_multilabel)
    return model_folder.apply_temperature(logits, temperature, is_multilabel)


def load_score(folder: Path, config: dict[str, Any], labels: list[str]) -> Score:
    """Return what scores texts, by the kind of folder."""
    kind = config["amazon_electra"]["kind"]
    if kind == "transformers":
        return load_network(folder, labels)
    if kind == "onnx":
        return load_graph(folder, config, len(labels))
    if kind == "skops":
        content = (folder / model_folder.PIPELINE).read_bytes()
        return model_folder.load_pipeline(content, labels)[1]
    parts = config["amazon_electra"]["parts"]
    model_folder.check_parts(parts)
    scores = []
    for part in parts:
        own = json.loads((folder / part["folder"] / "config.json").read_text(encoding="utf-8"))
        scores.append((load_score(folder / part["folder"], own, labels), own["temperature"]))
    weights = [part["weight"] for part in parts]
    is_multilabel = config.get("problem_type") == model_folder.MULTILABEL

    def score(texts: list[str]) -> np.ndarray:
        found = [temper(one(texts), temperature, is_multilabel) for one, temperature in scores]
        logits = model_folder.sum_parts(found, weights, is_multilabel)
        return model_folder.apply_temperature(logits, 1.0, is_multilabel)

    return score


def read_values(given: Any) -> list[Any]:
    """Return the values of the column `text`; MlflowException, for which the server answers 400,
    where rows are lists.
    """
    column = np.atleast_1d(np.asarray(given["text"], dtype=object))
    if column.ndim > 1:
        raise MlflowException("text: row 1 is a list; send one text a row", INVALID_PARAMETER_VALUE)
    return list(column)


def load_network(folder: Path, labels: list[str]) -> Score:
    """Return what scores texts by transformers' own pipeline."""
    from transformers import pipeline

    classify: Any = pipeline("text-classification", model=str(folder), top_k=None)

    def score(texts: list[str]) -> np.ndarray:
        found = classify(texts, truncation=True, batch_size=BATCH)
        by_label = [{one["label"]: one["score"] for one in row} for row in found]
        scores = np.array([[row[label] for label in labels] for row in by_label], np.float64)
        model_folder.check_scores(scores, len(texts), len(labels))
        return scores

    return score


def load_graph(folder: Path, config: dict[str, Any], classes: int) -> Score:
    """Return what scores texts by ONNX Runtime, without transformers."""
    tokenizer = model_folder.load_tokenizer(
        (folder / "tokenizer.json").read_bytes(), config["amazon_electra"]["max_length"]
    )
    weights, pad = (folder / model_folder.ONNX).read_bytes(), config.get("pad_token_id")
    compute = model_folder.load_graph(weights, tokenizer, classes, pad)
    is_multilabel = config.get("problem_type") == model_folder.MULTILABEL
    return lambda texts: model_folder.apply_temperature(compute(texts), 1.0, is_multilabel)


mlflow.models.set_model(ReviewClassifier())
