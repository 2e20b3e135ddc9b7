"""The first line says which arm is best, by how much, and what the others cost beside it."""

import json

from amazon_electra.beam_jobs.core.files import write_json
from tests.model.report.evaluations import render, said, write_cells

ACCURACIES = {"joined": 0.92, "TF-IDF": 0.8, "fine-tuned": 0.91}
SECONDS = {"joined": 10, "TF-IDF": 2, "fine-tuned": 280}


def test_the_report_begins_with_the_decision(tmp_path):
    cells = write_cells(tmp_path, {n: lambda _, s, a=a: said(a, s) for n, a in ACCURACIES.items()})
    for cell in cells:
        cell |= {"finetuned": cell["evaluation"], "cpu_seconds": SECONDS[cell["arm"]]}
        dev = {"accuracy": ACCURACIES[cell["arm"]], "loss": 0.5}
        (tmp_path / cell["evaluation"] / "result.json").write_text(json.dumps({"dev": dev}))
    (tmp_path / "model").mkdir()
    write_json(tmp_path / "model" / "cost.json", {"megabytes": 90.8, "milliseconds": 5.25})
    _, text = render(tmp_path, cells, models=["model"], arms=[{"name": n} for n in ("TF-IDF",)])
    first = text.partition("##")[0]
    assert "polarity: joined is best" in first
    assert first.index("over TF-IDF") < first.index("over fine-tuned")
    assert "over fine-tuned, which costs 28 times the CPU" in first
    assert "over TF-IDF, which costs 0.2 of the CPU" in first
    assert "90.8 MB" in first
    assert "5.2 ms" in first
