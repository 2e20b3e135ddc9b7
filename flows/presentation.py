"""What one sees of a run: in the Prefect UI artifacts, in a terminal bars, elsewhere plain lines.

An audience is told what happens to a stage. None of them can stop a run: what they cannot show they drop.
"""

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from flows.store import Manifest, Stage

if TYPE_CHECKING:
    from rich.text import Text

UPDATE_SECONDS = 2.0
"""Between two updates of a progress artifact: each is a request to the server."""
LINE_SECONDS = 10.0
"""Between two plain lines about the same stage."""


class Audience(Protocol):
    def begun(self, stage: Stage, log: str) -> None: ...

    def progressed(self, stage: Stage, progress: Mapping[str, Any]) -> None: ...

    def completed(self, stage: Stage, manifest: Manifest, found: bool) -> None: ...

    def failed(self, stage: Stage, cause: str) -> None: ...

    def waiting(self, stage: Stage) -> None: ...

    def linked(self, stage: Stage, address: str) -> None: ...


class Terminal:
    """Bars where a person looks on, a line now and then where nobody does."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._bar_of: dict[str, Any] = {}
        self._lock, self._last = threading.Lock(), dict[str, float]()
        self.found = 0

    def __enter__(self) -> "Terminal":
        if self.console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def say(self, text: "str | Text") -> None:
        """What is in brackets is said as it is: names of files and extras have them."""
        self.console.print(text, soft_wrap=True, markup=False)

    def begun(self, stage: Stage, log: str) -> None:
        if self.console.is_terminal:
            self._bar_of[stage.fingerprint] = self._bars.add_task(stage.label, total=None, note="")
        else:
            self.say(f"{stage.label}: started")

    def progressed(self, stage: Stage, progress: Mapping[str, Any]) -> None:
        note = f"{progress.get('rate', 0):,.0f} {progress.get('unit', '')}/s {extra_numbers(progress)}".strip()
        if self.console.is_terminal:
            self._bars.update(
                self._bar_of[stage.fingerprint],
                total=progress.get("total") or None,
                completed=progress.get("done", 0),
                note=note,
                description=f"{stage.label}: {progress.get('description', '')}"
                if progress.get("description")
                else stage.label,
            )
            return
        with self._lock:
            quiet = time.monotonic() - self._last.get(stage.fingerprint, float("-inf")) < LINE_SECONDS
            if not quiet:
                self._last[stage.fingerprint] = time.monotonic()
        if not quiet:
            self.say(f"{stage.label}: {progress.get('done', 0):,} of {progress.get('total') or '?'} {note}")

    def completed(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        self._remove_bar(stage)
        how = "found complete" if found else f"{manifest.get('seconds', 0.0):,.1f} s"
        self.found += found
        self.say(marked("✓", "green", f"{stage.label:<32} {how:<16} ", one_line(manifest)))
        for warning in manifest["result"].get("warnings", []):
            self.say(marked("!", "yellow", f"{stage.label}: {warning}"))

    def failed(self, stage: Stage, cause: str) -> None:
        self._remove_bar(stage)
        self.say(marked("✗", "red", f"{stage.label:<32} {cause}"))

    def waiting(self, stage: Stage) -> None:
        self.say(f"{stage.label}: another run is making it; waiting")

    def linked(self, stage: Stage, address: str) -> None:
        self.say(f"{stage.label}: {address}")

    def _remove_bar(self, stage: Stage) -> None:
        bar = self._bar_of.pop(stage.fingerprint, None)
        if bar is not None:
            self._bars.remove_task(bar)


def marked(mark: str, colour: str, text: str, aside: str = "") -> "Text":
    from rich.text import Text

    return Text.assemble((mark, colour), " ", text, (aside, "dim"))


class PrefectRun:
    """Artifacts and log lines of the task run that this thread is in."""

    def __init__(self) -> None:
        self._artifacts: dict[str, tuple[Any, float]] = {}

    def begun(self, stage: Stage, log: str) -> None:
        from prefect.artifacts import create_progress_artifact

        def create() -> None:
            made = create_progress_artifact(
                0.0, key=key(stage.label, "progress"), description=f"{stage.label}: started"
            )
            self._artifacts[stage.fingerprint] = (made, time.monotonic())

        run_logger().info("%s: started; log %s", stage.label, log)
        shown(create)

    def progressed(self, stage: Stage, progress: Mapping[str, Any]) -> None:
        from prefect.artifacts import update_progress_artifact

        artifact, last = self._artifacts.get(stage.fingerprint, (None, 0.0))
        if artifact is None or time.monotonic() - last < UPDATE_SECONDS:
            return
        percent = 100 * progress.get("done", 0) / (progress.get("total") or float("inf"))
        done = f"{progress.get('done', 0):,} of {progress.get('total') or '?'} {progress.get('unit', '')}"
        left = f"{progress['seconds_left']:,.0f} s left" if progress.get("seconds_left") is not None else ""
        rate = f"{progress.get('rate') or 0:,.1f}/s"
        text = " · ".join(p for p in (f"{stage.label}: {done}", rate, left, extra_numbers(progress)) if p)
        shown(lambda: update_progress_artifact(artifact, progress=min(percent, 100.0), description=text))
        self._artifacts[stage.fingerprint] = (artifact, time.monotonic())

    def completed(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        from prefect.artifacts import create_table_artifact, update_progress_artifact

        run_logger().info("%s: %s; %s", stage.label, "found complete" if found else "done", one_line(manifest))
        for warning in manifest["result"].get("warnings", []):
            run_logger().warning("%s: %s", stage.label, warning)
        if found:
            return
        artifact, _ = self._artifacts.pop(stage.fingerprint, (None, 0.0))
        if artifact:
            shown(lambda: update_progress_artifact(artifact, progress=100.0, description=f"{stage.label}: done"))
        rows = [{"count": name, "value": value} for name, value in numbers(manifest["result"]).items()]
        about = f"{stage.label}, fingerprint {stage.fingerprint}, {manifest.get('seconds', 0):,.1f} s"
        shown(lambda: create_table_artifact(rows, key=key(stage.label, "counts"), description=about))

    def failed(self, stage: Stage, cause: str) -> None:
        run_logger().error("%s: %s", stage.label, cause)

    def waiting(self, stage: Stage) -> None:
        run_logger().info("%s: another run is making it; waiting", stage.label)

    def linked(self, stage: Stage, address: str) -> None:
        run_logger().info("%s: %s", stage.label, address)
        publish_link(address, f"{stage.label}-job", f"{stage.label}: the job on Dataflow")


def publish_report(markdown: str) -> None:
    from prefect.artifacts import create_markdown_artifact

    shown(lambda: create_markdown_artifact(markdown, key="report", description="What the adaptation was worth"))


def publish_warnings(warnings: list[str]) -> None:
    from prefect.artifacts import create_table_artifact

    rows = [{"warning": warning} for warning in warnings]
    shown(lambda: create_table_artifact(rows, key="warnings", description="What a person should look at"))


def publish_stages(rows: list[dict[str, Any]]) -> None:
    """One row per stage: what went in and came out, what it cost."""
    from prefect.artifacts import create_table_artifact

    shown(lambda: create_table_artifact(rows, key="stages", description="Counts and cost of every stage"))


def publish_link(url: str, name: str, description: str) -> None:
    from prefect.artifacts import create_link_artifact

    shown(lambda: create_link_artifact(url, name, key=key(name), description=description))


def shown(show: Any) -> None:
    """Showing is not worth failing for: a server that is away, a full disk of its database."""
    try:
        show()
    except Exception as error:
        logging.getLogger("amazon_electra").warning("could not be shown in Prefect: %s", error)


def run_logger() -> Any:
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("amazon_electra")


def key(*words: str) -> str:
    """Lower-case letters, digits and dashes: what Prefect accepts as an artifact's key."""
    text = "".join(c if c.isascii() and c.isalnum() else "-" for c in "-".join(words).lower())
    return "-".join(part for part in text.split("-") if part)


def numbers(result: Mapping[str, Any], prefix: str = "") -> dict[str, float | int]:
    """Every number of a result, nested ones with dotted names."""
    found: dict[str, float | int] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            found |= numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            found[f"{prefix}{name}"] = value
    return found


HEADLINES = {
    "dump": ["files", "bytes"],
    "corpus": ["read", "kept", "sentences"],
    "vocabulary": ["size", "reviews"],
    "vocabulary-fit": ["words", "unknown_rate", "tokens_per_word"],
    "shards": ["sequences", "tokens", "fill"],
    "pretraining": ["steps", "tokens", "generator_loss", "discriminator_loss"],
    "finetuning": ["n_train", "learning_rate", "dev.accuracy", "dev.macro_f1"],
    "evaluation": ["n", "metrics.accuracy.value", "metrics.macro_f1.value"],
}
"""The numbers of each stage that a line has room for; the table of counts has all of them."""


def one_line(manifest: Manifest) -> str:
    """The headline numbers of a stage, and what was dropped in all."""
    result = numbers(manifest["result"])
    names = [name for name in HEADLINES.get(manifest["stage"], list(result)[:4]) if name in result]
    parts = [f"{number(result[n])} {n.removeprefix('metrics.').removesuffix('.value')}" for n in names]
    dropped = [value for name, value in result.items() if name.startswith("dropped.")]
    return ", ".join(parts + ([f"{sum(dropped):,} dropped"] if dropped else []))


def number(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def extra_numbers(progress: Mapping[str, Any]) -> str:
    """What a job adds to its progress, for example the losses."""
    usual = {"description", "done", "total", "unit", "rate", "seconds_left"}
    return " ".join(f"{n} {number(v)}" for n, v in progress.items() if n not in usual and isinstance(v, int | float))
