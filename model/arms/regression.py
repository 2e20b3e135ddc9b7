"""Logistic regression whose C and class weights are chosen by cross-validation, and the file that
keeps it with what comes before it, `model.skops`: what the arms with a regression share.
"""

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from beam_jobs.core.errors import UserError
from beam_jobs.core.model_folder import PIPELINE, check_pipeline
from beam_jobs.core.progress import Progress
from model.evaluation.predictions import compute_log_softmax
from model.finetuning.examples import Example

STEPS = 200
"""Of L-BFGS at most; those of the largest C need 30 to 90."""
FOLDS = 5
WORTH_BALANCING = 0.01
"""Of macro-F1, from which on balanced classes are taken: their log-loss cannot be compared."""
ABSENT = -30.0
"""Logit of a class that no training example has."""


@dataclass(frozen=True)
class Attempt:
    """One regression that was tried, with its figures on the held-out folds."""

    C: float
    class_weight: Literal["balanced"] | None
    loss: float
    macro_f1: float


def fit_regression(
    features: Any, labels: np.ndarray, classes: int, strengths: Sequence[float]
) -> tuple[LogisticRegression, list[Attempt]]:
    """Return the regression of the C with the smallest cross-validated log-loss, fitted to all
    examples, and all that were tried; the last is another try of the best C, with balanced classes.

    Features are [examples, width], sparse or dense. One thread: sums in another order would give
    other weights.
    """
    folds = list(StratifiedKFold(FOLDS).split(labels, labels)) if is_divisible(labels) else []
    tried: list[Attempt] = []
    with (
        threadpool_limits(1),
        warnings.catch_warnings(),
        Progress(len(strengths) + 1, "values of C", "logistic regression") as shown,
    ):
        warnings.simplefilter("ignore", ConvergenceWarning)  # held-out folds judge what it reached
        before: dict[int, LogisticRegression] = {}
        for strength in strengths:
            tried.append(cross_validate(features, labels, classes, folds, strength, None, before))
            shown.update(len(tried))
        best = min(tried, key=lambda one: one.loss)
        balanced = cross_validate(features, labels, classes, folds, best.C, "balanced", {})
        tried.append(balanced)
        shown.update(len(tried))
        if balanced.macro_f1 >= best.macro_f1 + WORTH_BALANCING:
            best = balanced
        model = LogisticRegression(C=best.C, class_weight=best.class_weight, max_iter=STEPS)
        return model.fit(features, labels), [best, *(one for one in tried if one is not best)]


def is_divisible(labels: np.ndarray) -> bool:
    """Return whether every class has an example for at least two folds."""
    return int(np.unique(labels, return_counts=True)[1].min()) >= 2 and len(labels) >= 2 * FOLDS


def cross_validate(
    features: Any,
    labels: np.ndarray,
    classes: int,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    strength: float,
    class_weight: Literal["balanced"] | None,
    before: dict[int, LogisticRegression],
) -> Attempt:
    """Return the figures of one C over the held-out folds; `before` has the regressions of a weaker
    C, where those of this one begin. Without folds there are none: infinite loss, no macro-F1.
    """
    if not folds:
        return Attempt(strength, class_weight, float("inf"), 0.0)
    logits = np.empty((len(labels), classes), np.float32)
    for number, (train, held_out) in enumerate(folds):
        model = LogisticRegression(
            C=strength, class_weight=class_weight, max_iter=STEPS, warm_start=True
        )
        if weaker := before.get(number):
            model.coef_, model.intercept_ = weaker.coef_.copy(), weaker.intercept_.copy()
            model.classes_ = weaker.classes_
        before[number] = model.fit(features[train], labels[train])
        decision = model.decision_function(features[held_out])
        logits[held_out] = expand_logits(decision, model.classes_, classes)
    loss = -float(np.mean(compute_log_softmax(logits)[np.arange(len(labels)), labels]))
    found = f1_score(labels, logits.argmax(1), average="macro", zero_division=0)
    return Attempt(strength, class_weight, loss, float(found))


def list_labels(examples: Sequence[Example]) -> np.ndarray:
    """Return the classes of examples, int64 [examples]."""
    return np.fromiter((example.label for example in examples), np.int64, len(examples))


def summarize_attempts(tried: Sequence[Attempt]) -> dict[str, Any]:
    """Return what result.json says of the regressions that were tried, the best first."""
    best = tried[0]
    return {
        "C": best.C,
        "class_weight": best.class_weight,
        "cross_validation": {"folds": FOLDS, "loss": best.loss, "macro_f1": best.macro_f1},
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
