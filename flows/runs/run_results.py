"""Publishes what a run made, in Prefect and MLflow: the report, the stages, links, warnings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.runner.stage_runner import flatten_numbers
from flows.store.store import Manifest, Stage, Store
from flows.ui import artifacts, summary
from model.tracking.mlflow_run import Tracking

LINKED_ARTIFACTS = {"report.html": "The report as a page", "model": "The model"}
"""What a person looks for among a run's artifacts in MLflow."""


def publish_results(
    store: Store, stages: Sequence[Stage], last: Stage, tracking: Tracking
) -> dict[str, Any]:
    """Publish report, table of stages and warnings; return the paths of what a person looks at
    next.
    """
    folder = store.fetch(last)
    made = [(m, store.locate(stage)) for stage in stages if (m := store.manifest(stage))]
    manifests = [manifest for manifest, _ in made]
    artifacts.publish_stages([summarize_stage(*one) for one in made])
    report = folder / "report.md"
    if report.exists():
        artifacts.publish_report(report.read_text())
    publish_tags_and_metrics(manifests, tracking)
    for name in ("report.md", "report.html", "report.json", "model"):
        if (folder / name).exists():
            tracking.log_folder(folder / name, "model" if name == "model" else "")
            publish_artifact_link(name, folder, tracking)
    return {
        "report": str(folder / "report.html"),
        "model": str(folder / "model"),
        "folder": str(folder),
    }


def publish_tags_and_metrics(manifests: Sequence[Manifest], tracking: Tracking) -> None:
    """Log fingerprints, warnings and every stage's numbers to the parent run in MLflow."""
    tracking.set_tags(
        {
            f"amazon_electra.{m['stage']}": m["fingerprint"]
            for m in manifests
            if not m["title"].endswith("test")
        }
    )
    told: dict[str, str] = {}
    for m in manifests:
        for warning in m["result"].get("warnings", []):
            told.setdefault(warning, m["title"])  # cells of one encoder say the same
    if warnings := [f"{title}: {warning}" for warning, title in told.items()]:
        artifacts.publish_warnings(warnings)
        tracking.set_tags({"amazon_electra.warnings": " ".join(warnings)})
    if bases := [m["inputs"]["base"]["fingerprint"] for m in manifests if "base" in m["inputs"]]:
        tracking.set_tags({"amazon_electra.base": bases[-1]})
    tracking.log_metrics(
        {
            f"{m['title']}.{n}".replace("·", "-"): v
            for m in manifests
            for n, v in flatten_numbers(m["result"]).items()
        }
    )


def publish_artifact_link(name: str, folder: Path, tracking: Tracking) -> None:
    """Link from Prefect to what MLflow keeps; the description says where it lies on the disk."""
    if name in LINKED_ARTIFACTS and (page := tracking.build_address()):
        about = f"{LINKED_ARTIFACTS[name]}, in MLflow; also {folder / name}"
        artifacts.publish_link(f"{page}/artifacts/{name}", f"{name}-in-mlflow", about)


def summarize_stage(manifest: Manifest, folder: str) -> dict[str, Any]:
    """Return a row of the table of stages."""
    return {
        "stage": manifest["title"],
        "fingerprint": manifest["fingerprint"],
        "counts": summary.summarize_manifest(manifest),
        "seconds": manifest.get("seconds", 0.0),
        "cpu seconds": manifest.get("cpu_seconds", 0.0),
        "folder": folder,
    }
