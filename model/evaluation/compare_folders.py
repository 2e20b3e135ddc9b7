"""Compares two model folders as they are, on test examples that neither was trained on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.model_folder.copies import FILE, load_trained
from amazon_electra.beam_jobs.model_folder.probabilities import take_logarithms
from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.evaluation.predict import predict_classes
from amazon_electra.model.evaluation.significance import compare_arms
from amazon_electra.model.finetuning.examples import Sampling, load_examples
from amazon_electra.model.finetuning.tasks import find_task

MIN_COMPARED = 200
"""Test examples below which a person decides."""
Load = Callable[[Path], tuple[list[str], Callable[[Sequence[str]], np.ndarray]]]
"""Labels of a folder, and its probabilities [texts, classes]."""


def compare_folders(
    own: Path, champion: Path, task: str, data: Path, most: int, load: Load
) -> dict[str, Any]:
    """Return own − champion on the new model's test (log-loss, macro-F1, accuracy) with intervals,
    or as `refused` why not. Examples the champion was trained on, and near copies, are left out.
    """
    results = read_json(own / "results.json")
    labels, predict = load(own)
    other_labels, predict_other = load(champion)
    found, trained = find_task(task, data, tuple(labels)), load_trained(str(champion))
    refused = ""
    if sorted(labels) != sorted(other_labels):
        refused = f"the champion has other classes ({', '.join(other_labels)})"
    elif found.shape != "classification":
        refused = f"the task is {found.shape}"
    if refused or trained is None:
        why = refused or f"the champion has no {FILE}"
        return {"n": 0, "refused": f"{why}, and a person decides"}
    sampling = Sampling(most, has_dev=results["selection"] == "dev")
    examples = load_examples(found, data, "test", sampling)
    is_copy = trained.mark_copies([example.text for example in examples])
    kept = [example for example, copy in zip(examples, is_copy, strict=True) if not copy]
    about = {"n": len(kept), "trained_on": int(is_copy.sum())}
    if len(kept) < MIN_COMPARED:
        few = (
            f"{len(kept)} test reviews are left without the {about['trained_on']} that the "
            f"champion was trained on; below {MIN_COMPARED} a person decides"
        )
        return about | {"refused": few}
    texts = [example.text for example in kept]
    columns = [other_labels.index(label) for label in labels]
    predictions = [
        predict_classes(list(take_logarithms(probabilities)), kept)
        for probabilities in (predict(texts), predict_other(texts)[:, columns])
    ]
    differences = {}
    for metric in ("loss", "macro_f1", "accuracy"):
        c = compare_arms(METRICS[metric], predictions[:1], predictions[1:])
        differences[metric] = {"difference": c.difference, "low": c.low, "high": c.high}
    return about | differences
