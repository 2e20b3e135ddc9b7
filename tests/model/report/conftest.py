"""Write a study of two tasks, and its report."""

import json

import pytest

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.model.evaluate import summarize_predictions
from amazon_electra.model.evaluation import predictions
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.report import report
from tests.model.report.evaluations import said

COUNTS = {
    "read": 2000,
    "kept": 1990,
    "splits": {"pretrain": 9, "dev": 5, "test": 7},
    "dropped": {"withheld": 3},
    "columns": {"used": {"text": ["review_text"]}, "unused": ["grade", "strs"]},
}
COST = {
    "device": "cpu", "threads": 1, "parameters": 123_456, "bytes": 5e6, "peak_bytes": 1e9,
    "reviews_per_second": 321.0,
    "batch_1": {"p50_ms": 1.5, "p99_ms": 2.5}, "batch_32": {"p50_ms": 0.5, "p99_ms": 0.7},
}  # fmt: skip


@pytest.fixture(scope="package")
def study(tmp_path_factory):
    """Two tasks: on one the arms differ by 15 points, on the other not at all."""
    folder = tmp_path_factory.mktemp("study")
    cells = []
    for task, accuracies in (
        ("polarity", {"in-domain": 0.85, "random": 0.70}),
        ("stars", {"in-domain": 0.7, "random": 0.701}),
    ):
        for arm, accuracy in accuracies.items():
            for seed in range(3):
                place = folder / f"{arm}-{task}-{seed}"
                place.mkdir()
                result = said(accuracy, seed)
                predictions.write_predictions(result, place / "predictions.parquet")
                about = summarize_predictions(result, find_task("polarity"), "test")
                write_json(place / "metrics.json", about | {"learning_rate": 1e-3})
                mistake = {"label": "negative", "prediction": "positive", "loss": 3.1}
                texts = [{"text": f"<b>not</b> good | at all {i}"} for i in range(30)]
                lines = [json.dumps(mistake | text) + "\n" for text in texts]
                (place / "mistakes.jsonl").write_text("".join(lines))
                cell = {"arm": arm, "task": task, "seed": seed, "evaluation": place.name}
                cells.append(cell)
    content = {
        "title": "Adaptation <of> a model",
        "command": "amazon-electra run --dump x.json.gz",
        "dump": {"files": 1, "sha256": "abc"},
        "stages": [{"stage": "corpus", "counts": COUNTS}],
        "arms": [
            {"name": "random", "data_known": False, "cost": COST},
            {
                "name": "in-domain",
                "held_out": ["polarity"],
                "tokens": 4_000_000,
                "matrix_flops": 1.25e13,
                "seconds": 185,
                "cost": COST | {"batch_1": {"p50_ms": 2.5, "p99_ms": 3.5}},
            },
        ],
        "cells": cells,
    }
    (folder / "study.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="package")
def written(study):
    report.write_report(study / "study.json", study / "report")
    return study / "report"
