"""The report begins with a sentence for each task: how often the model is right, on what, against
the simple way, and what to do next.
"""

import json

from amazon_electra.beam_jobs.core.files import write_json
from tests.model.report.evaluations import render, said, write_cells

ACCURACIES = {"joined": 0.92, "TF-IDF": 0.8, "fine-tuned": 0.91}
SECONDS = {"joined": 10, "TF-IDF": 2, "fine-tuned": 280}


def test_the_report_begins_for_a_manager(tmp_path):
    cells = write_cells(tmp_path, {n: lambda _, s, a=a: said(a, s) for n, a in ACCURACIES.items()})
    for cell in cells:
        cell |= {"finetuned": cell["evaluation"], "cpu_seconds": SECONDS[cell["arm"]]}
        dev = {"accuracy": ACCURACIES[cell["arm"]], "loss": 0.5}
        (tmp_path / cell["evaluation"] / "result.json").write_text(json.dumps({"dev": dev}))
    (tmp_path / "model").mkdir()
    write_json(tmp_path / "model" / "cost.json", {"megabytes": 90.8, "milliseconds": 5.25})
    write_json(tmp_path / "model" / "results.json", {"task": "polarity"})
    command = "amazon-electra run --dump shop.csv --store 'my store'"
    result, text = render(tmp_path, cells, models=["model"], command=command, store="my store")
    [accuracy] = [
        row["metrics"]["accuracy"]["value"] for row in result.results if row["arm"] == "joined"
    ]
    first, _, rest = text.partition("##")
    assert f"**polarity**: joined is right for {accuracy:.1%} (" in first
    assert "of 400 test examples" in first
    assert "points (" in first
    assert "over TF-IDF, where answering the most frequent class is right for 50.0%." in first
    assert "**Next:** label new reviews with it." in first
    assert "amazon-electra score --dump new.csv --store 'my store'" in first
    assert "10 CPU seconds (TF-IDF 2, fine-tuned 280)" in rest
    assert "90.8 MB and 5.2 ms" in rest
    assert first.count("<svg") == 1
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("<details><summary><h2>") == text.count("\n## ")
