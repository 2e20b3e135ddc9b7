"""A model folder as `mlflow models serve` runs it, with the package beam_jobs.model_folder copied
beside. Column `text` in; `label` (multi-label: a list), `probabilities` and `reason` out. A value
that is no review has a reason and neither of the others.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from model_folder.classifier import Classifier, Folder, read_review  # MLflow's copy


class ReviewClassifier:
    """Answers as `score` does."""

    def __init__(self, classifier: Classifier) -> None:
        self.classifier = classifier

    def predict(self, given: Any, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return the answers to the column `text`; MlflowException (400) where rows are lists."""
        column = np.atleast_1d(np.asarray(given["text"], dtype=object))
        if column.ndim > 1:
            about = "text: row 1 is a list; send one text a row"
            raise MlflowException(about, INVALID_PARAMETER_VALUE)
        reviews = [read_review(value) for value in column]
        empty = {"label": None, "probabilities": None}
        rows: list[dict[str, Any]] = [empty | {"reason": reason or None} for _, reason in reviews]
        places = [place for place, (_, reason) in enumerate(reviews) if not reason]
        found = self.classifier.score([reviews[place][0] for place in places])
        answers = self.classifier.answer(found)
        for place, answer, probabilities in zip(places, answers, found.tolist(), strict=True):
            named = dict(zip(self.classifier.labels, probabilities, strict=True))
            rows[place] |= {"label": answer, "probabilities": named}
        return pd.DataFrame(rows, columns=["label", "probabilities", "reason"], dtype=object)


def _load_pyfunc(path: str) -> ReviewClassifier:
    """Load the folder; MLflow calls a function of this name."""
    folder = Folder(lambda name: Path(path, name).read_bytes())
    return ReviewClassifier(Classifier.load(folder))
