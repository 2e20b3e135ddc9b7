"""What a terminal shows: every character of a message, at the end every task's own metrics, and
nothing that could stop a run.
"""

import json

from amazon_electra.flows.cli.terminal import Terminal, print_results
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.mlflow_run import Tracking
from tests.flows.fakes import FakeStage

STAGE = FakeStage("dump", 1, {}, result={"files": 1}, title="dump [gcp]")


def test_brackets_and_colons_are_shown_as_they_are(capsys):
    terminal = Terminal()
    terminal.print_line("model · label:label: started")
    terminal.print_line("pip install 'amazon-electra[gcp]'")
    terminal.on_failure(STAGE, "[/data/x.json] cannot be read")
    result = {"files": 1, "warnings": ["[red]is a colour"]}
    terminal.on_complete(STAGE, {"stage": "dump", "seconds": 1.0, "result": result}, False)
    shown = capsys.readouterr().err
    for text in (
        "label:label:",
        "amazon-electra[gcp]",
        "[/data/x.json] cannot",
        "✓ dump [gcp] ",
        "1 file\n",
    ):
        assert text in shown
    assert "[red]is a colour" in shown


def test_an_audience_that_cannot_show_something_stops_neither_the_others_nor_the_run(
    tmp_path, heard
):
    told = []

    class Broken:
        def __getattr__(self, event):
            raise ValueError("nothing to show it on")

    class Listening:
        def __getattr__(self, event):
            return lambda *what: told.append(event)

    tracking = Tracking(f"sqlite:///{tmp_path}/unused.db")
    runner = StageRunner(Store(tmp_path), [Broken(), Listening()], tracking)
    assert runner.complete_stage(STAGE)["result"] == {"files": 1}
    assert told == ["on_complete"]
    assert "Broken could not show 'on_complete': nothing to show it on" in heard.text


def row(task, arm="a", **metrics):
    found = {n: {"value": v, "low": v - 0.01, "high": v + 0.01} for n, v in metrics.items()}
    return {"task": task, "arm": arm, "seed_count": "2", "metrics": found}


def print_report(folder, **content):
    report = {"title": "T", "answer": "Both.", **content}
    (folder / "report.json").write_text(json.dumps(report))
    print_results(folder)


def test_every_task_is_printed_by_its_own_metrics(tmp_path, capsys):
    rows = [
        row("polarity", accuracy=0.9, macro_f1=0.8, ece=0.1, loss=0.3),
        row("squad2", exact_match=0.5, answer_f1=0.6),
        row("sts-b", pearson=0.7, mse=1.25),
    ]
    print_report(tmp_path, results=rows)
    printed = capsys.readouterr().out
    for words in (
        "macro-F1", "90.0% (89.0 – 91.0)", "0.300 (0.290 – 0.310)", "exact match",
        "60.0% (59.0 – 61.0)",
        "Pearson correlation", "1.250 (1.240 – 1.260)",
    ):  # fmt: skip
        assert words in printed
    assert "calibration" not in printed
