"""Shows a run in the terminal, and its results at the end."""

import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from amazon_electra.beam_jobs.core.progress import format_report
from amazon_electra.beam_jobs.core.terminal import escape_controls
from amazon_electra.flows.runner import processes
from amazon_electra.flows.runner.stage_runner import listeners
from amazon_electra.flows.servers import access, stock
from amazon_electra.flows.servers.access import TAG
from amazon_electra.flows.store.flatten import summarize_manifest
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Manifest

LINE_SECONDS = 10.0  # between two plain lines about the same stage


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
            disable=not sys.stderr.isatty(),  # notebooks force colours on rich
        )
        self._bars, self._next_line = dict[str, TaskID](), dict[str, float]()

    def on_line(self, text: str, mark: str = "", colour: str = "") -> None:
        """Print a line as it is, with a coloured mark before it."""
        line = Text.assemble((f"{mark} " if mark else "", colour), escape_controls(text))
        self.console.print(line, soft_wrap=True)

    def on_start(self, stage: Stage, log: str) -> None:
        bar = self.add_task(escape_controls(stage.label), total=None, note="")
        self._bars[stage.fingerprint] = bar
        if self.disable:
            self.on_line(f"{stage.label}: started")

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
            self.on_line(f"{stage.label}: {format_report(progress)}")

    def on_complete(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        how = "found complete" if found else f"{manifest.get('seconds', 0.0):,.1f} s"
        self._end(stage, f"{how:<16} {summarize_manifest(manifest)}", "✓", "green")
        for warning in manifest["result"].get("warnings", []):
            self.on_line(f"{stage.label}: {warning}", "!", "yellow")

    def on_failure(self, stage: Stage, cause: str) -> None:
        self._end(stage, cause, "✗", "red")

    def on_stop(self, stage: Stage) -> None:
        self._end(stage, "stopped", "■", "yellow")

    def _end(self, stage: Stage, how: str, mark: str, colour: str) -> None:
        if stage.fingerprint in self._bars:
            self.remove_task(self._bars.pop(stage.fingerprint))
        self.on_line(f"{stage.label:<32} {how}", mark, colour)


class RunWarnings(logging.Handler):
    """Prints what a run logs as a warning; its errors are printed when it ends."""

    def __init__(self, terminal: Terminal):
        super().__init__(logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR:
            self._terminal.on_line(record.getMessage(), "!", "yellow")


def run_in_terminal(root: Path, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what `run`, which imports a flow, returns once Prefect's server is known."""
    access.check_named_server("PREFECT_API_URL")
    access.check_named_server("MLFLOW_TRACKING_URI")
    for name in ("LOGGING_HANDLERS_CONSOLE", "INTERNAL_LOGGING"):  # failures are printed once
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
