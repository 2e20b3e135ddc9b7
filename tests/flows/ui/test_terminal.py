"""What a terminal shows: every character of a message, and nothing that could stop a run."""

from flows.runner.stage_runner import StageRunner
from flows.store.store import Stage, Store
from flows.ui.terminal import Terminal
from model.tracking.mlflow_run import Tracking

STAGE = Stage("dump", 1, {}, result={"files": 1}, title="dump [gcp]")


def test_brackets_are_shown_as_they_are(capsys):
    terminal = Terminal()
    terminal.print_line("pip install 'amazon-electra[gcp]'")
    terminal.on_failure(STAGE, "[/data/x.json] cannot be read")
    manifest = {
        "stage": "dump",
        "seconds": 1.0,
        "result": {"files": 1, "warnings": ["[red]is a colour"]},
    }
    terminal.on_complete(STAGE, manifest, False)
    shown = capsys.readouterr().err
    for text in (
        "amazon-electra[gcp]",
        "[/data/x.json] cannot",
        "✓ dump [gcp] ",
        "1 files",
        "[red]is a colour",
    ):
        assert text in shown


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

    completion = StageRunner(
        Store(tmp_path), [Broken(), Listening()], Tracking(f"sqlite:///{tmp_path}/unused.db")
    )
    assert completion.complete_stage(STAGE)["result"] == {"files": 1}
    assert told == ["on_start", "on_complete"]
    assert "Broken could not show 'on_start': nothing to show it on" in heard.text
