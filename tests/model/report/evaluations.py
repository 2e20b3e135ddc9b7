"""Make predictions that are right with some probability, write them as evaluations, and render the
report of them.
"""

import hashlib
import json

import numpy as np

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.model.evaluate import summarize_predictions
from amazon_electra.model.evaluation import predictions
from amazon_electra.model.evaluation.predictions import Predictions
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.report import report
from amazon_electra.model.report.document import render_template
from amazon_electra.model.report.inputs import read_report_input


def said(accuracy: float, seed: int, n: int = 400) -> Predictions:
    """Predictions for the same n examples, right with this probability."""
    generator = np.random.default_rng([seed, int(accuracy * 1000)])
    labels = np.arange(n) % 2
    guesses = np.where(generator.random(n) < accuracy, labels, 1 - labels)
    probabilities = np.where(np.arange(2) == guesses[:, None], 0.8, 0.2).astype(np.float32)
    return Predictions(
        ids=[hashlib.sha256(str(i).encode()).hexdigest() for i in range(n)],
        labels=labels.tolist(),
        predictions=guesses.tolist(),
        loss=-np.log(probabilities[np.arange(n), labels]).astype(float),
        probabilities=probabilities,
        n_classes=2,
    )


def write_cells(folder, accuracies, pretraining_seeds=(None,), seeds=range(3), task="polarity"):
    """Write evaluations of a task of two classes, whatever it is called, and return the cells;
    `accuracies` are those of the arms.
    """
    cells = []
    for arm, accuracy in accuracies.items():
        for pretraining_seed in pretraining_seeds:
            for seed in seeds:
                place = folder / f"{task}-{arm}-{pretraining_seed}-{seed}"
                place.mkdir(parents=True)
                result = said(accuracy, seed + 10 * (pretraining_seed or 0))
                predictions.write_predictions(result, place / "predictions.parquet")
                about = summarize_predictions(result, find_task("polarity"), "test")
                write_json(place / "metrics.json", about)
                cell = {"arm": arm, "task": task, "seed": seed, "evaluation": str(place)}
                cells.append(cell | {"pretraining_seed": pretraining_seed})
    return cells


def write_result(cell, **content):
    """Write what the fine-tuning of a cell says of itself."""
    cell["finetuned"] = cell["evaluation"]
    write_json(f"{cell['finetuned']}/result.json", content)


def render(folder, cells, **content):
    """Return the result of the report, and the report as Markdown, before it becomes a page."""
    file = folder / "study.json"
    file.write_text(json.dumps({"cells": cells, **content}))
    result = report.write_report(file, folder / "report")
    shown = report.gather(read_report_input(file), folder)
    return result, render_template("report.md.j2", **shown)
