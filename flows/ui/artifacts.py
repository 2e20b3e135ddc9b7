"""What the Prefect UI shows of a run: artifacts, log lines, and each stage's result in a line.

A listener hears what happens to a stage. None can stop a run: what it cannot show it drops.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from beam_jobs.core.progress import format_report
from flows.runner.logs import find_run_logger
from flows.runner.stage_runner import flatten_numbers
from flows.store.store import Manifest, Stage

UPDATE_SECONDS = 2.0
"""Time between two updates of a progress artifact: each is a request to the server."""


class PrefectRun:
    """Artifacts and log lines of the task run that this thread is in."""

    def __init__(self) -> None:
        self._artifacts: dict[str, tuple[Any, float]] = {}

    def on_plan(self, line: str, page: str) -> None:
        from prefect.artifacts import create_markdown_artifact

        find_run_logger().info("plan: %s", line)
        publish_safely(
            lambda: create_markdown_artifact(page, key="plan", description="What is to do")
        )

    def on_start(self, stage: Stage, log: str) -> None:
        from prefect.artifacts import create_progress_artifact

        def create_artifact() -> None:
            key, description = make_artifact_key(stage.label, "progress"), f"{stage.label}: started"
            artifact = create_progress_artifact(0.0, key=key, description=description)
            self._artifacts[stage.fingerprint] = (artifact, time.monotonic())

        find_run_logger().info("%s: started; log %s", stage.label, log)
        publish_safely(create_artifact)

    def on_progress(self, stage: Stage, progress: Mapping[str, Any]) -> None:
        from prefect.artifacts import update_progress_artifact

        artifact, updated_at = self._artifacts.get(stage.fingerprint, (None, 0.0))
        if artifact is None or time.monotonic() - updated_at < UPDATE_SECONDS:
            return
        percent = min(100 * progress["done"] / (progress["total"] or float("inf")), 100.0)
        text = f"{stage.label}: {format_report(progress)}"
        publish_safely(
            lambda: update_progress_artifact(artifact, progress=percent, description=text)
        )
        self._artifacts[stage.fingerprint] = (artifact, time.monotonic())

    def on_complete(self, stage: Stage, manifest: Manifest, found: bool) -> None:
        from prefect.artifacts import create_table_artifact, update_progress_artifact

        logger, how = find_run_logger(), "found complete" if found else "done"
        logger.info("%s: %s; %s", stage.label, how, summarize_manifest(manifest))
        for warning in manifest["result"].get("warnings", []):
            logger.warning("%s: %s", stage.label, warning)
        if found:
            return
        artifact, _ = self._artifacts.pop(stage.fingerprint, (None, 0.0))
        if artifact:
            text = f"{stage.label}: done"
            publish_safely(
                lambda: update_progress_artifact(artifact, progress=100.0, description=text)
            )
        numbers = flatten_numbers(manifest["result"])
        rows: list[dict[str, Any]] = [{"count": n, "value": value} for n, value in numbers.items()]
        rows += [
            {"count": f"column {name}, not used", "value": f"{field}?" if field else ""}
            for name, field in manifest["result"].get("columns", {}).get("unused", {}).items()
        ]
        seconds = manifest.get("seconds", 0)
        about = f"{stage.label}, fingerprint {stage.fingerprint}, {seconds:,.1f} s"
        key = make_artifact_key(stage.label, "counts")
        publish_safely(lambda: create_table_artifact(rows, key=key, description=about))

    def on_failure(self, stage: Stage, cause: str) -> None:
        find_run_logger().error("%s: %s", stage.label, cause)

    def on_wait(self, stage: Stage) -> None:
        find_run_logger().info("%s: another run is making it; waiting", stage.label)

    def on_link(self, stage: Stage, address: str) -> None:
        find_run_logger().info("%s: %s", stage.label, address)
        publish_link(address, f"{stage.label}-job", f"{stage.label}: the job on its engine")


def publish_report(markdown: str) -> None:
    """Show the report on the run's page."""
    from prefect.artifacts import create_markdown_artifact

    about = "What the adaptation was worth"
    publish_safely(lambda: create_markdown_artifact(markdown, key="report", description=about))


def publish_warnings(warnings: list[str]) -> None:
    """Show the warnings of all stages as a table."""
    from prefect.artifacts import create_table_artifact

    rows, about = [{"warning": text} for text in warnings], "What a person should look at"
    publish_safely(lambda: create_table_artifact(rows, key="warnings", description=about))


def publish_stages(rows: list[dict[str, Any]]) -> None:
    """Show a table with a row per stage: what went in and came out, what it cost."""
    from prefect.artifacts import create_table_artifact

    about = "Counts and cost of every stage"
    publish_safely(lambda: create_table_artifact(rows, key="stages", description=about))


def publish_link(url: str, name: str, description: str) -> None:
    """Show a link on the run's page."""
    from prefect.artifacts import create_link_artifact

    key = make_artifact_key(name)
    publish_safely(lambda: create_link_artifact(url, name, key=key, description=description))


def publish_safely(publish: Callable[[], Any]) -> None:
    """Call `publish`, and log what it raises: a server that is away or full must not fail a run."""
    try:
        publish()
    except Exception as error:
        logging.getLogger("amazon_electra").warning("could not be shown in Prefect: %s", error)


def make_artifact_key(*words: str) -> str:
    """Return lower-case letters, digits and dashes: what Prefect accepts as an artifact's key."""
    text = "".join(c if c.isascii() and c.isalnum() else "-" for c in "-".join(words).lower())
    return "-".join(part for part in text.split("-") if part)


Number = float | int

HEADLINES = {
    "dump": ["files", "bytes"],
    "corpus": ["read", "kept", "sentences"],
    "origin": ["layers", "hidden", "parameters", "vocabulary_size"],
    "vocabulary": ["size", "reviews"],
    "vocabulary-fit": ["words", "unknown_rate", "tokens_per_word"],
    "shards": ["sequences", "tokens", "fill"],
    "dev-shards": ["sequences", "tokens"],
    "pretraining": ["steps", "tokens", "mlm_loss", "generator_loss", "discriminator_loss"],
    "finetuning": ["n_train", "learning_rate", "dev.accuracy", "dev.macro_f1"],
    "evaluation": ["n", "metrics.accuracy.value", "metrics.macro_f1.value"],
}
"""The numbers of each stage that a line has room for; the table of counts has all of them."""

KEPT_ORIGIN = "the loaded weights are kept: by the probe training made them worse"


def summarize_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the headline numbers of a stage, and how many records were dropped in all."""
    numbers = flatten_numbers(manifest["result"])
    headlines = HEADLINES.get(manifest["stage"], list(numbers)[:4])
    parts = [
        f"{format_number(numbers[n])} {n.removeprefix('metrics.').removesuffix('.value')}"
        for n in headlines
        if n in numbers
    ]
    dropped = [value for name, value in numbers.items() if name.startswith("dropped.")]
    parts += [f"{sum(dropped):,} dropped"] if dropped else []
    parts += [KEPT_ORIGIN] if numbers.get("written_step") == 0 else []
    return ", ".join(parts)


def format_number(value: Number) -> str:
    """Return an integer with separators of thousands, another number with four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
