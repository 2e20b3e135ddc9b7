"""What a terminal shows: every character of a message, and nothing that could stop a run."""

from amazon_electra.flows.cli.terminal import Terminal
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.mlflow_run import Tracking
from tests.flows.fakes import FakeStage

STAGE = FakeStage("dump", 1, {}, result={"files": 1}, title="dump [gcp]")


def test_brackets_and_colons_are_shown_as_they_are(capsys):
    terminal = Terminal()
    terminal.on_line("model · label:label: started")
    terminal.on_line("pip install 'amazon-electra[gcp]'")
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


def test_a_notebook_gets_lines_and_no_bars(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in its kernel
    with Terminal() as terminal:
        terminal.on_start(STAGE, "")
    assert capsys.readouterr().err == "dump [gcp]: started\n"


def test_an_audience_that_cannot_show_something_stops_neither_the_others_nor_the_run(
    tmp_path, heard
):
    events = []

    class Broken:
        def __getattr__(self, event):
            raise ValueError("nothing to show it on")

    class Listening:
        def __getattr__(self, event):
            return lambda *what: events.append(event)

    tracking = Tracking(f"sqlite:///{tmp_path}/unused.db")
    runner = StageRunner(Store(tmp_path), [Broken(), Listening()], tracking)
    assert runner.complete_stage(STAGE)["result"] == {"files": 1}
    assert events == ["on_complete"]
    assert "Broken could not show 'on_complete': nothing to show it on" in heard.text
