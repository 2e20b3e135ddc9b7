"""A finished study as the report reads it: study.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.evaluation import held_out, study_file
from model.evaluation import study as studies
from model.evaluation.study_file import Arm

if TYPE_CHECKING:
    from model.evaluation.study_run import StudyRun


def described(run: "StudyRun", costs: Mapping[str, Any]) -> dict[str, Any]:
    """`costs`: what was measured of each arm's speed. What `run.about` tells (dump, stages, command) holds most."""
    study = run.study
    return {
        "title": study.title,
        "question": study.question,
        "command": list(run.command),
        "comparisons": [list(pair) for pair in study_file.pairs(study)],
        "arms": [_arm(run, arm, costs) for arm in study_file.with_grid(study)],
        "tasks": [
            {"name": t.name, "task": t.task, "data": t.data, **dict(study.settings), **dict(t.settings)}
            for t in study.tasks
        ],
        "stages": _corpora(run),
        "pretraining": [
            {"name": arm.name, "metrics": str((run.encoder_folder(arm) / "metrics.jsonl").resolve())}
            for arm in study.arms
            if arm.pretraining
        ],
        "settings": dict(study.settings),
        "searched": run.searched,
        "cells": [_cell(run, cell) for cell in run.cells],
        **_model(run),
        **run.about,
    }


def _cell(run: "StudyRun", cell: studies.Cell) -> dict[str, Any]:
    folder = run.folder(cell)
    return {
        "arm": cell.arm.name,
        "task": cell.task.name,
        "seed": cell.seed,
        "fingerprint": folder.name,
        "evaluation": str((folder / "evaluation").resolve()),
    }


def _model(run: "StudyRun") -> dict[str, Any]:
    """The encoder of the first arm is what the model card is about, where it is a folder here."""
    first = run.study.arms[0]
    folder = Path(run.encoder(first))
    if not (folder / "config.json").exists():
        return {}
    return {"model": str(folder.resolve()), "model_arm": study_file.with_grid(run.study)[0].name}


def _corpora(run: "StudyRun") -> list[dict[str, Any]]:
    """Counts of the corpora the tasks are from."""
    stages = []
    for data in dict.fromkeys(task.data for task in run.study.tasks):
        file = Path(data) / "corpus.json"
        if file.exists():
            counts = json.loads(file.read_text())
            counts.pop("files", None)
            stages.append({"stage": f"corpus {Path(data).name}", "fingerprint": run.content(data), "counts": counts})
    return stages


def _pretrained(run: "StudyRun", arm: Arm) -> dict[str, Any]:
    """What the arm's pre-training came to, and which folder it is."""
    if not arm.pretraining:
        return {}
    folder = run.encoder_folder(arm)
    return {"fingerprint": folder.name, "recipe": _recipe(arm), **json.loads((folder / "result.json").read_text())}


def _recipe(arm: Arm) -> str:
    """What it is but for the length of its pre-training: arms that share it lie on one line against tokens."""
    chosen = [f"{name} {value}" for name, value in sorted(arm.pretraining.set.items()) if name != "steps"]
    chosen += [f"{name} {value}" for name, value in sorted(arm.settings.items())]
    return ", ".join([f"{arm.pretraining.preset} on {Path(arm.pretraining.shards).name}", *chosen])


def _arm(run: "StudyRun", arm: Arm, costs: Mapping[str, Any]) -> dict[str, Any]:
    """`held_out`: the tasks whose test texts are shown to be none that its encoder was pre-trained on."""
    arms, pretrained = {one.name: one for one in study_file.with_grid(run.study)}, _pretrained(run, arm)
    told: dict[str, Any] = {"name": arm.name, "data_known": held_out.known(arm, arms)}
    if shards := held_out.seen(arm, arms):
        told["held_out"] = [task.name for task in run.study.tasks if held_out.is_held_out(task.data, shards)]
    told |= {
        name: pretrained[name] for name in ("flops", "tokens", "seconds", "fingerprint", "recipe") if name in pretrained
    }
    if arm.name in costs:
        told |= {"cost": costs[arm.name], "latency_ms": costs[arm.name]["batch_1"]["p50_ms"]}
    return told
