"""The report of a study: the stage, and the description of the study that its job reads."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beam_jobs.job.files import write_json
from flows.configuration.parameters import Parameters
from flows.configuration.study_file import (
    Arm,
    Study,
    StudyChoice,
    is_without_folder,
    list_pairs,
    name_form,
)
from flows.runner.store import Stage, Store
from flows.stages.external import locate_encoder, locate_stage
from flows.stages.finetuning import locate_results
from flows.stages.report import (
    describe_origins,
    describe_stages,
    list_changed_settings,
    tell_written,
)
from flows.studies import held_out
from flows.studies.study_reading import LoadedStudy, find_study_file, format_study
from flows.studies.study_stages import StudyCell, StudyStages


def build_study_report(
    stages: StudyStages, parameters: Parameters, counted: Sequence[Stage]
) -> Stage:
    """Return the stage of the report; `counted` are the stages whose counts it shows."""
    loaded = stages.loaded

    def list_arguments(store: Store, folder: Path) -> list[str]:
        (folder / "study.yaml").write_text(format_choice(loaded.choice), encoding="utf-8")
        write_json(folder / "study.json", describe_study(stages, parameters, counted, folder))
        return ["--study", str(folder / "study.json"), "--output", str(folder)]

    inputs = {cell.evaluated.label: cell.evaluated for cell in stages.cells}
    inputs |= {stage.label: stage for stage in stages.latencies.values()}
    return Stage(
        "study",
        8,
        {
            "study": loaded.study.model_dump(mode="json", exclude_defaults=True),
            "left_out": dict(loaded.left_out),
        },
        inputs,
        "model.report.report",
        list_arguments,
        title=loaded.choice.title,
    )


def describe_study(
    stages: StudyStages, parameters: Parameters, counted: Sequence[Stage], folder: Path
) -> dict[str, Any]:
    """Return study.json, as model/report/report.py reads it."""
    study, store = stages.study, stages.store
    placed = place_study(stages)
    costs = {name: read_json(store, s, "latency.json") for name, s in stages.latencies.items()}
    searched = {name: read_json(store, s, "best.json") for name, s in stages.searches.items()}
    return {
        "title": study.title,
        "store": str(store.root),
        "question": study.question,
        "command": format_command(stages.loaded, parameters, folder / "study.yaml"),
        "comparisons": [list(pair) for pair in list_pairs(study)],
        "arms": [describe_arm(stages, arm, placed, costs) for arm in stages.arms.values()],
        "left_out": [{"name": name, "why": why} for name, why in stages.loaded.left_out.items()],
        "tasks": [
            {"name": t.name, "task": t.task, "data": p.data, **study.settings, **t.settings}
            for t, p in zip(study.tasks, placed.tasks, strict=True)
        ],
        **(describe_stages(store, counted) if counted else {"stages": describe_corpora(stages)}),
        "pretraining": [
            {
                "name": stage.label.removeprefix("pre-training "),
                "metrics": str(store.fetch(stage, "metrics.jsonl") / "metrics.jsonl"),
                **tell_written(store, stage),
            }
            for _, _, stage in stages.pretrainings
        ],
        "settings": dict(study.settings),
        "searched": {name: best["settings"] for name, best in searched.items()},
        "cells": [describe_cell(store, cell) for cell in stages.cells],
        **describe_origins(store, stages.origins),
        **describe_model(stages, placed),
    }


def format_choice(choice: StudyChoice) -> str:
    """Return the study as it was written, with its variables."""
    if choice.is_own:
        return format_study(choice.own)
    return find_study_file(choice.file).read_text(encoding="utf-8")


def place_study(stages: StudyStages) -> Study:
    """Return the study with the folders that its places are now, and each arm's first encoder."""
    store = stages.store

    def place_arm(arm: Arm) -> Arm:
        update: dict[str, Any] = {}
        if arm.pretraining:
            own = arm.pretraining
            named = {name: getattr(own, name) for name in ("shards", "replay")}
            placed = {
                name: locate_stage(store, stages.find_source(place)) if place else ""
                for name, place in named.items()
            }
            update["pretraining"] = own.model_copy(update=placed)
        elif not is_without_folder(arm.encoder):
            update["encoder"] = locate_encoder(store, stages.find_source(arm.encoder))
        return arm.model_copy(update=update)

    tasks = [
        task.model_copy(update={"data": locate_stage(store, stages.find_source(task.data))})
        for task in stages.study.tasks
    ]
    arms = [place_arm(arm) for arm in stages.arms.values()]
    return stages.study.model_copy(update={"tasks": tasks, "arms": arms})


def describe_cell(store: Store, cell: StudyCell) -> dict[str, Any]:
    several = {} if cell.pretraining_seed is None else {"pretraining_seed": cell.pretraining_seed}
    return {
        "arm": cell.arm.name,
        "task": cell.task.name,
        "seed": cell.seed,
        **several,
        "fingerprint": cell.finetuned.fingerprint,
        **locate_results(store, cell.finetuned, cell.evaluated),
    }


def describe_model(stages: StudyStages, placed: Study) -> dict[str, Any]:
    """Return the encoder of the first arm, which the model card is about, where it is a folder."""
    first = next(iter(stages.arms.values()))
    seed = stages.list_pretraining_seeds(first)[0]
    if first.pretraining:
        folder = Path(locate_encoder(stages.store, stages.find_encoder(first, seed)))
    else:
        folder = Path(placed.arms[0].encoder)
    if not (folder / "config.json").exists():
        return {}
    return {"model": str(folder.resolve()), "model_arm": first.name}


def describe_corpora(stages: StudyStages) -> list[dict[str, Any]]:
    """Return the counts of external corpora that the tasks are from."""
    described = []
    for place in dict.fromkeys(task.data for task in stages.study.tasks):
        stage = stages.find_source(place)
        file = Path(locate_stage(stages.store, stage)) / "corpus.json"
        if file.exists():
            counts = json.loads(file.read_text())
            counts.pop("files", None)
            name = f"corpus {file.parent.name}"
            described.append({"stage": name, "fingerprint": stage.fingerprint, "counts": counts})
    return described


def describe_arm(
    stages: StudyStages, arm: Arm, placed: Study, costs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is known of an arm: what its encoder has seen, what it cost, how fast it is.

    `held_out`: the tasks whose test texts are shown to be none that its encoder was pre-trained on;
    `withhold_own`: false where near copies of test reviews were left in it.
    """
    arms = {one.name: one for one in placed.arms}
    arm_here = arms[arm.name]
    told: dict[str, Any] = {"name": arm.name, "data_known": held_out.is_data_known(arm_here, arms)}
    if shards := held_out.list_seen_shards(arm_here, arms):
        told["held_out"] = [t.name for t in placed.tasks if held_out.is_held_out(t.data, shards)]
        if any(held_out.may_repeat_tests(task.data, shards) for task in placed.tasks):
            told["withhold_own"] = False
    if origin := stages.find_arm_origin(arm):
        told["origin"] = origin.fingerprint
    if arm.pretraining:
        stage = stages.build_pretraining(arm, stages.study.pretraining_seeds[0])
        result = read_json(stages.store, stage, "result.json")
        told |= {name: result[name] for name in ("tokens", "matrix_flops", "flops", "seconds")}
        told |= {"fingerprint": stage.fingerprint, "recipe": format_recipe(arm, arm_here)}
        if len(seeds := stages.study.pretraining_seeds) > 1:
            every = [(seed, stages.build_pretraining(arm, seed).fingerprint) for seed in seeds]
            told["pretrainings"] = [{"seed": seed, "fingerprint": one} for seed, one in every]
    if steps := list_written_steps(stages, arm):
        told["written_steps"] = steps
    if arm.name in costs:
        told |= {"cost": costs[arm.name], "latency_ms": costs[arm.name]["batch_1"]["p50_ms"]}
        told["forms"] = {form: costs[name_form(arm.name, form)] for form in stages.study.forms}
    return told


def list_written_steps(stages: StudyStages, arm: Arm) -> list[int]:
    """Return the step whose state each pre-training of an arm wrote, where a probe chose it."""
    trained = [stage for other, _, stage in stages.pretrainings if other.name == arm.name]
    told = [tell_written(stages.store, stage) for stage in trained]
    return [one["written_step"] for one in told if one]


def format_recipe(arm: Arm, placed: Arm) -> str:
    """Return what a pre-training is but for its length: arms that share it lie on one line against
    tokens.
    """
    own = placed.pretraining
    chosen = [
        f"{name} {value}" for name, value in sorted(arm.pretraining.set.items()) if name != "steps"
    ]
    chosen += [f"{name} {value}" for name, value in sorted(arm.settings.items())]
    shards, replay = (Path(place).name for place in (own.shards, own.replay))
    mixed = f" and {own.replay_ratio:g} of {replay}" if replay else ""
    return ", ".join([f"{own.preset} on {shards}{mixed}", *chosen])


def read_json(store: Store, stage: Stage, name: str) -> Any:
    return json.loads((store.fetch(stage, name) / name).read_text())


def format_command(loaded: LoadedStudy, parameters: Parameters, written: Path) -> str:
    """Return what makes the study again, as a shell reads it; `written` is the file of a study that
    was filled into the form.
    """
    choice = loaded.choice
    words = ["amazon-electra", "study", str(written) if choice.is_own else choice.file]
    words += ["--preset", parameters.preset, "--store", parameters.store]
    words += ["--dump", *parameters.dump.paths] if loaded.reads_dump else []
    words += ["--general", *choice.general_text] if choice.general_text else []
    words += ["--at-once", str(choice.at_once)] if choice.at_once != StudyChoice().at_once else []
    own = [f"{name}={value}" for name, value in {**choice.variables, **choice.settings}.items()]
    settings = [word for text in own for word in ("--set", text)]
    return shlex.join([*words, *list_changed_settings(parameters), *settings])
