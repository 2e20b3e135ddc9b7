"""Shows a run in the terminal, and its results at the end."""

import importlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.progress import format_report
from amazon_electra.beam_jobs.core.terminal import escape_controls, print
from amazon_electra.flows.runner import processes
from amazon_electra.flows.runner.stage_runner import listeners
from amazon_electra.flows.servers import access, stock
from amazon_electra.flows.servers.access import TAG
from amazon_electra.flows.store.flatten import summarize_manifest
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Manifest
from amazon_electra.model.report.formats import format_with_interval, get_title

LINE_SECONDS = 10.0  # between two plain lines about the same stage
NOT_SHOWN = "ece"  # metric of the report alone
TABLE_WIDTH = 110  # characters of a line where no terminal says how many it has


class Terminal(Progress):
    """Shows progress as bars in a terminal, elsewhere as a line now and then."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False, emoji=False)
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bars, self._next_line = dict[str, TaskID](), dict[str, float]()

    def print_line(self, text: str, mark: str = "", colour: str = "", aside: str = "") -> None:
        """Print a line as it is, with a coloured mark before it and dim text after it."""
        start, end = (mark, colour), (escape_controls(aside), "dim")
        line = Text.assemble(start, " " if mark else "", escape_controls(text), end)
        self.console.print(line, soft_wrap=True)

    def on_plan(self, line: str, page: str) -> None:
        self.print_line(line)

    def on_start(self, stage: Stage, log: str) -> None:
        bar = self.add_task(escape_controls(stage.label), total=None, note="")
        self._bars[stage.fingerprint] = bar
        if self.disable:
            self.print_line(f"{stage.label}: started")

    def on_progress(self, stage: Stage, progress: Mapping[str, Any]) -> None:
        about = f": {progress['description']}" if progress["description"] else ""
        self.update(
            self._bars[stage.fingerprint],
            description=escape_controls(f"{stage.label}{about}"),
            completed=progress["done"],
            total=progress["total"] or None,
            note=escape_controls(format_report(progress, with_time_left=False)),
        )
        if self.disable and time.monotonic() >= self._next_line.get(stage.fingerprint, 0):
            self._next_line[stage.fingerprint] = time.monotonic() + LINE_SECONDS
            self.print_line(f"{stage.label}: {format_report(progress)}")

    def on_complete(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        how = "found complete" if found else f"{manifest.get('seconds', 0.0):,.1f} s"
        self._end(stage, "✓", "green", f"{how:<16} ", summarize_manifest(manifest))
        for warning in manifest["result"].get("warnings", []):
            self.print_line(f"{stage.label}: {warning}", "!", "yellow")

    def on_failure(self, stage: Stage, cause: str) -> None:
        self._end(stage, "✗", "red", cause)

    def on_stop(self, stage: Stage) -> None:
        self._end(stage, "■", "yellow", "stopped")

    def _end(self, stage: Stage, mark: str, colour: str, how: str, about: str = "") -> None:
        if stage.fingerprint in self._bars:
            self.remove_task(self._bars.pop(stage.fingerprint))
        self.print_line(f"{stage.label:<32} {how}", mark, colour, about)

    def on_wait(self, stage: Stage) -> None:
        self.print_line(f"{stage.label}: another run is making it; waiting")

    def on_link(self, stage: Stage, address: str) -> None:
        self.print_line(f"{stage.label}: {address}")

    def on_answer(self, row: Mapping[str, str], best: str) -> None:
        metric, value = list(row.items())[2]  # after task and model
        line = f"{row['model']}, {row['task']}: {value} {metric}; {best}"
        self.print_line(line, "→", "cyan")


class RunWarnings(logging.Handler):
    """Prints what a run logs as a warning, once: a plan and the run itself say the same. Its errors
    are printed when it ends.
    """

    def __init__(self, terminal: Terminal):
        super().__init__(logging.WARNING)
        self._terminal, self._printed = terminal, set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno < logging.ERROR and text not in self._printed:
            self._printed.add(text)
            self._terminal.print_line(text, "!", "yellow")


def run_in_terminal(root: Path, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `run`, which imports a flow, returns once Prefect's server is known."""
    access.check_named_server("PREFECT_API_URL")
    access.check_named_server("MLFLOW_TRACKING_URI")
    for name in ("LOGGING_HANDLERS_CONSOLE", "INTERNAL_LOGGING"):  # failures are printed here, once
        os.environ.setdefault(f"PREFECT_{name}_LEVEL", "CRITICAL")
    processes.interrupt_on_signals(signal.SIGTERM)

    def load_libraries() -> None:  # Prefect and MLflow take seconds
        importlib.import_module("amazon_electra.flows.runs.graph_run")
        importlib.import_module("mlflow")

    stock.connect_prefect(root, load_libraries)

    from prefect import tags
    from prefect.exceptions import Abort

    with Terminal() as terminal:
        listeners.set((terminal,))
        logging.getLogger("prefect.flow_runs").addHandler(RunWarnings(terminal))
        try:
            with tags(TAG):
                return run()
        except Abort:  # it was cancelled in the UI
            raise KeyboardInterrupt from None


def print_results(folder: Path) -> None:
    """Print a table of arms and tasks with their metrics, the answer, and where the report is."""
    report = read_json(folder / "report.json")
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, TABLE_WIDTH)
    table = Table(title=escape_controls(report["title"]), title_justify="left", box=SIMPLE_HEAD)
    for name in ("task", "model", "seeds", "test split, 95% intervals"):
        table.add_column(name, overflow="fold")
    for row in report["results"]:
        metrics = [
            f"{get_title(name)} {format_with_interval(name, value)}"
            for name, value in row["metrics"].items()
            if name != NOT_SHOWN
        ]
        cells = row["task"], row["arm"], row["seed_count"], "\n".join(metrics)
        table.add_row(*map(escape_controls, cells))
    console.print(table)
    print(f"answer      {report['answer']}")
    print(f"report      {folder / 'report.html'}")
