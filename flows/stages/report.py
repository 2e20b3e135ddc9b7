"""The report: every comparison with its interval and test, the loss curves, the model card."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.parameters import Parameters
from flows.stages.finetuning import Cell
from flows.store import Manifest, Stage, Store
from model.json_file import write_json


def stage(parameters: Parameters, dump: Stage, made: Sequence[Stage], encoder: Stage, cells: Sequence[Cell]) -> Stage:
    """`made` are the stages whose counts the report shows, in the order of the graph."""
    inputs = {cell.title: cell.evaluated for cell in cells}
    title = f"{dump.result['name']} with preset {parameters.preset}"

    def arguments(store: Store, folder: Path) -> list[str]:
        study = folder / "study.json"
        write_json(study, described(store, title, parameters, made, encoder, cells))
        return ["--study", str(study), "--output", str(folder)]

    return Stage("report", 1, {"title": title}, {**inputs, "encoder": encoder}, "model.evaluation.report", arguments)


def described(
    store: Store,
    title: str,
    parameters: Parameters,
    made: Sequence[Stage],
    encoder: Stage,
    cells: Sequence[Cell],
) -> dict[str, Any]:
    """The study as the report's job reads it."""
    return {
        "title": title,
        "command": command(parameters, encoder),
        **described_stages(store, made),
        "pretraining": [{"name": "in-domain ELECTRA", "metrics": str(store.folder(encoder) / "metrics.jsonl")}],
        "model": str(store.folder(encoder) / "discriminator"),
        "cells": [
            {"arm": c.arm, "task": c.task, "seed": c.seed, "evaluation": str(store.folder(c.evaluated))} for c in cells
        ],
    }


def command(parameters: Parameters, encoder: Stage) -> str:
    """What gives this report again."""
    base = encoder.inputs.get("base")
    how = f"--add-to {base.fingerprint}" if base else f"--preset {parameters.preset}"
    return f"amazon-electra run --dump {' '.join(parameters.dump.paths)} {how}"


def described_stages(store: Store, made: Sequence[Stage]) -> dict[str, Any]:
    """The dump, what every stage that is complete counted, and how many texts were withheld."""
    manifests = [manifest for stage in made if (manifest := store.manifest(stage))]
    dump = next((stage for stage in made if stage.name == "dump"), None)
    corpus: Manifest = next((m["result"] for m in manifests if m["stage"] == "corpus"), {})
    return {
        "dump": {"name": dump.result["name"], "fingerprint": dump.fingerprint, **dump.parameters} if dump else {},
        "stages": [
            {
                "stage": m["title"],
                "fingerprint": m["fingerprint"],
                "counts": m["result"],
                "seconds": m.get("seconds", 0.0),
                "cpu_seconds": m.get("cpu_seconds", 0.0),
            }
            for m in manifests
        ],
        "withheld": corpus.get("withheld", {}),
    }
