"""Logistic regression whose strength and class weights are chosen on dev, and the file that keeps
it with what comes before it, `model.skops`: what the arms with a regression share.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from beam_jobs.core.errors import UserError
from beam_jobs.core.model_folder import PIPELINE, check_pipeline
from beam_jobs.core.progress import Progress
from model.evaluation.metrics import compute_metric, rank_dev_metrics
from model.evaluation.predict import make_predictions
from model.finetuning.examples import Example, Task

STEPS = 200
"""Of L-BFGS at most; those of the largest C need 30 to 90."""
ABSENT = -30.0
"""Logit of a class that no training example has."""
ScoreDev = Callable[[np.ndarray], dict[str, float]]
"""Returns {metric: value} on dev of logits [examples, classes]; the first decides."""


@dataclass(frozen=True)
class Attempt:
    """One regression that was tried."""

    C: float
    class_weight: Literal["balanced"] | None
    dev: dict[str, float]


def fit_regression(
    features: Any,
    labels: np.ndarray,
    dev_features: Any,
    classes: int,
    strengths: Sequence[float],
    score_dev: ScoreDev,
) -> tuple[LogisticRegression, list[Attempt]]:
    """Return the regression that is best on dev, and all that were tried: each strength with
    natural and with balanced classes, in the order of the strengths.

    Features are [examples, width], sparse or dense. One thread: sums in another order would give
    other weights.
    """
    tried: list[Attempt] = []
    best: LogisticRegression | None = None
    ways: tuple[Literal["balanced"] | None, ...] = (None, "balanced")
    with (
        threadpool_limits(1),
        warnings.catch_warnings(),
        Progress(len(ways) * len(strengths), "regressions", "logistic regression") as shown,
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)  # dev judges what it has reached
        for class_weight in ways:
            before: LogisticRegression | None = None
            for strength in strengths:
                model = LogisticRegression(
                    C=strength, class_weight=class_weight, max_iter=STEPS, warm_start=True
                )
                if before is not None:  # it begins where the weaker one ended
                    model.coef_, model.intercept_ = before.coef_.copy(), before.intercept_.copy()
                    model.classes_ = before.classes_
                before = model.fit(features, labels)
                logits = expand_logits(
                    model.decision_function(dev_features), model.classes_, classes
                )
                tried.append(Attempt(strength, class_weight, score_dev(logits)))
                if best is None or rank_dev_metrics(tried[-1].dev) > max(
                    rank_dev_metrics(one.dev) for one in tried[:-1]
                ):
                    best = model
                shown.update(len(tried))
    assert best is not None
    return best, tried


def list_labels(examples: Sequence[Example]) -> np.ndarray:
    """Return the classes of examples, int64 [examples]."""
    return np.fromiter((example.label for example in examples), np.int64, len(examples))


def make_dev_scorer(dev: Sequence[Example], task: Task) -> ScoreDev:
    """Return what measures the logits of dev."""

    def score(logits: np.ndarray) -> dict[str, float]:
        predictions = make_predictions(list(logits), [], dev, task)
        return {name: compute_metric(name, predictions) for name in task.metrics}

    return score


def summarize_attempts(tried: Sequence[Attempt]) -> dict[str, Any]:
    """Return what result.json says of the regressions that were tried, and of the best."""
    best = max(tried, key=lambda attempt: rank_dev_metrics(attempt.dev))
    return asdict(best) | {"tried": [asdict(attempt) for attempt in tried]}


def expand_logits(decision: np.ndarray, order: Sequence[int], classes: int) -> np.ndarray:
    """Return float32 [examples, classes] of scikit-learn's decision function, whose columns are the
    classes `order`, and which has one column for two classes.
    """
    if decision.ndim == 1:
        decision = np.stack([-decision / 2, decision / 2], 1)
    logits = np.full((len(decision), classes), ABSENT, np.float32)
    logits[:, list(order)] = decision
    return logits


def save_pipeline(pipeline: Pipeline, folder: Path) -> None:
    """Write model.skops, which `skops.io.load` reads without trusting any other type.

    Equal pipelines give equal bytes: skops numbers objects and names arrays by their addresses in
    memory, and dates the files of its archive; here they are counted, and have no date.
    """
    import skops.io  # loads all of scikit-learn: 3 CPU seconds, for who needs it

    numbers: dict[int, int] = {}
    names: dict[str, str] = {}

    def renumber(node: dict[str, Any]) -> dict[str, Any]:
        if isinstance(address := node.get("__id__"), int):
            node["__id__"] = numbers.setdefault(address, len(numbers))
        if isinstance(name := node.get("file"), str):
            node["file"] = names.setdefault(name, f"{len(names)}{Path(name).suffix}")
        return node

    with (
        ZipFile(BytesIO(skops.io.dumps(pipeline))) as given,
        ZipFile(folder / PIPELINE, "w") as own,
    ):
        schema = json.dumps(json.loads(given.read("schema.json"), object_hook=renumber))
        own.writestr(ZipInfo("schema.json"), schema, ZIP_DEFLATED)
        for name, new in names.items():
            own.writestr(ZipInfo(new), given.read(name), ZIP_DEFLATED)


def load_pipeline(folder: Path, classes: int) -> Pipeline:
    """Return the pipeline of a folder; UserError where its file is missing, damaged or larger than
    so many classes need.
    """
    import skops.io

    try:
        content = (folder / PIPELINE).read_bytes()
        check_pipeline(content, classes)
        return skops.io.loads(content)
    except Exception as error:
        raise UserError(
            f"{folder / PIPELINE}: not the model of a regression ({str(error).splitlines()[0]})"
        ) from error


def compute_logits(pipeline: Pipeline, inputs: Any, classes: Sequence[str]) -> np.ndarray:
    """Return float32 [inputs, classes] in the order of `classes`."""
    order = [list(classes).index(name) for name in pipeline[-1].classes_]
    return expand_logits(pipeline.decision_function(inputs), order, len(classes))
