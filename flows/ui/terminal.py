"""A graph started from the command line: shown in this terminal, recorded by a Prefect server."""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from beam_jobs.core.progress import Bars, format_report

if TYPE_CHECKING:
    from rich.text import Text

    from flows.configuration.form import Addition, Parameters
    from flows.store.store import Manifest, Stage

LINE_SECONDS = 10.0
"""Time between two plain lines about the same stage."""


class Terminal:
    """Bars where a person looks on, a line now and then where nobody does."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False)
        self.found = 0
        self._bars = Bars(self.console, transient=True)
        self._lock, self._printed_at = threading.Lock(), dict[str, float]()

    def __enter__(self) -> "Terminal":
        if self.console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.close()

    def print_line(self, text: "str | Text") -> None:
        """Print a line as it is: names of files and extras have brackets."""
        self.console.print(text, soft_wrap=True, markup=False)

    def on_plan(self, line: str, page: str) -> None:
        self.print_line(line)

    def on_start(self, stage: "Stage", log: str) -> None:
        if self.console.is_terminal:
            self._bars.add(stage.fingerprint, stage.label)
        else:
            self.print_line(f"{stage.label}: started")

    def on_progress(self, stage: "Stage", progress: Mapping[str, Any]) -> None:
        if self.console.is_terminal:
            about = f": {progress['description']}" if progress["description"] else ""
            self._bars.show(stage.fingerprint, f"{stage.label}{about}", progress)
        elif self._is_due(stage.fingerprint):
            self.print_line(f"{stage.label}: {format_report(progress)}")

    def _is_due(self, fingerprint: str) -> bool:
        """Return whether the last line about a stage is long enough ago; then this is the last."""
        with self._lock:
            now = time.monotonic()
            is_due = now - self._printed_at.get(fingerprint, float("-inf")) >= LINE_SECONDS
            if is_due:
                self._printed_at[fingerprint] = now
            return is_due

    def on_complete(self, stage: "Stage", manifest: "Manifest", found: bool) -> None:
        from flows.ui.artifacts import summarize_manifest

        self._bars.remove(stage.fingerprint)
        self.found += found
        how = "found complete" if found else f"{manifest.get('seconds', 0.0):,.1f} s"
        text = f"{stage.label:<32} {how:<16} "
        self.print_line(format_marked_line("✓", "green", text, summarize_manifest(manifest)))
        for warning in manifest["result"].get("warnings", []):
            self.print_line(format_marked_line("!", "yellow", f"{stage.label}: {warning}"))

    def on_failure(self, stage: "Stage", cause: str) -> None:
        self._bars.remove(stage.fingerprint)
        self.print_line(format_marked_line("✗", "red", f"{stage.label:<32} {cause}"))

    def on_wait(self, stage: "Stage") -> None:
        self.print_line(f"{stage.label}: another run is making it; waiting")

    def on_link(self, stage: "Stage", address: str) -> None:
        self.print_line(f"{stage.label}: {address}")


def format_marked_line(mark: str, colour: str, text: str, aside: str = "") -> "Text":
    """Return a line with a coloured mark before it and dim text after it."""
    from rich.text import Text

    return Text.assemble((mark, colour), " ", text, (aside, "dim"))


def run_in_terminal(
    form: "Parameters | Addition", run: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return what `run` returns: it imports and calls a flow, once the Prefect server is known."""
    from flows.servers import health, prefect_server
    from flows.store.store import Store

    store = Store(form.store)
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    health.interrupt_on_signals(signal.SIGTERM)
    prefect_server.connect_prefect(store.root)

    from prefect import tags

    from flows.runs import graph_run
    from flows.servers.settings import TAG

    with Terminal() as terminal:
        graph_run.LISTENERS.append(terminal)
        try:
            with tags(TAG):
                return run()
        finally:
            graph_run.LISTENERS.remove(terminal)
