"""The champion over a dump: a row with label and probabilities for every record of its files."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from prefect import flow

from beam_jobs.core import storage
from flows.configuration.form import Parameters, Scoring
from flows.configuration.form_tools import take_fields
from flows.runner.logs import FAILURE_HOOKS, find_run_logger
from flows.runner.prefect_tasks import call_with_retries
from flows.runner.stage_runner import StageMaker
from flows.runs.graph_run import name_run, read_flow_parameter, run_graph
from flows.servers import mlflow_server
from flows.stages.dump import build_dump_stage, format_options, list_dump, list_reading_options
from flows.stages.versions import VERSIONS
from flows.store.store import ExistingStage, Stage, Store
from model.tracking.registry import Registry

Scored = dict[tuple[str, str], tuple[Stage, list[str]]]
"""The stage and its files of scores by the name and SHA-256 of the file that was scored."""


def name_scoring_run() -> str:
    """Dump, model and date."""
    return name_run(f"labelled by the {read_flow_parameter('model', 'alias', 'champion')}")


@flow(name="score", flow_run_name=name_scoring_run, **FAILURE_HOOKS)
@take_fields(Scoring)
def score(**given: Any) -> dict[str, Any]:
    """Label every record of a dump with the champion; files that it has scored are left out."""
    form = Scoring(**given)
    store = Store(form.store)
    version = call_with_retries(form.model.alias, partial(find_version, form.model.alias, store))
    parameters = Parameters(dump=form.dump, store=form.store)
    run_graph(build_scoring_graph(version, form), parameters)
    dump, scores = build_dump_stage(form.dump, store), find_scores(version, form, store)
    output = form.output
    if not storage.is_remote(output):
        output = str(Path(store.root, Path(output).expanduser()))
    return {"folder": output, "files": copy_scores(dump, scores, output, store)}


def find_version(alias: str, store: Store) -> dict[str, str]:
    """Return number and tags of the registered model with this alias."""
    return Registry(mlflow_server.resolve_mlflow_uri(store.root)).find_model(alias)


def build_scoring_graph(version: dict[str, str], form: Scoring) -> Any:
    """Return the graph: model and those files of the dump that it has not scored → scores."""

    def graph(p: Parameters, make: StageMaker) -> Stage:
        dump = list_dump(p.dump, make)
        new = leave_out_files(dump, find_scores(version, form, make.store))
        if left_out := dump.result["files"] - new.result["files"]:
            find_run_logger().info(
                "version %s scored %d of %d files before: their scores are copied",
                version["version"],
                left_out,
                dump.result["files"],
            )
        if not new.result["files"]:
            return make(dump)
        return make(build_scores_stage(version, form, make(new)))

    return graph


def leave_out_files(dump: Stage, known: Scored) -> Stage:
    """Return the dump without the files that have scores."""
    pairs = zip(dump.parameters["files"], dump.result["paths"], strict=True)
    new = [(f, path) for f, path in pairs if (f["name"], f["sha256"]) not in known]
    files = [file for file, _ in new]
    result = {
        **dump.result,
        "files": len(files),
        "bytes": sum(file["size"] for file in files),
        "paths": [path for _, path in new],
    }
    return replace(dump, parameters={"files": files}, result=result)


def list_job_options(form: Scoring) -> list[str]:
    """Return what the form decides about the scores, as the job's command line has it."""
    workers = ["--direct_num_workers", str(form.model.workers)] if form.model.workers else []
    return [
        *["--precision", form.model.precision, "--output-format", form.scores.format],
        *["--id", form.scores.id, "--with-text", str(form.scores.with_text).lower()],
        *format_options(list_reading_options(form.dump)),
        *workers,
    ]


def list_parameters(version: dict[str, str], form: Scoring) -> dict[str, Any]:
    """Return what decides the scores beside the model and the dump."""
    return {
        "version": version["version"],
        "precision": form.model.precision,
        **form.scores.model_dump(),
        "reading": list_reading_options(form.dump),
    }


def build_scores_stage(version: dict[str, str], form: Scoring, dump: Stage) -> Stage:
    model = ExistingStage("model", 0, {}, known=version["model"])
    return Stage(
        "scores",
        VERSIONS["scores"],
        list_parameters(version, form),
        {"dump": dump, "model": model},
        "beam_jobs.scoring_job",
        lambda store, folder: [
            *["--model", str(store.fetch(model)), "--model-version", version["version"]],
            *["--input", *dump.result["paths"], "--output", str(folder)],
            *list_job_options(form),
        ],
    )


def find_scores(version: dict[str, str], form: Scoring, store: Store) -> Scored:
    """Return all scores that the store has of this model, as the form wants them."""
    wanted = "scores", VERSIONS["scores"], list_parameters(version, form), version["model"]
    found: Scored = {}
    for manifest in store.list_manifests():
        made = manifest["stage"], manifest["version"], manifest["parameters"]
        if made != wanted[:3] or manifest["inputs"]["model"]["fingerprint"] != wanted[3]:
            continue
        stage = ExistingStage("scores", 0, {}, known=manifest["fingerprint"])
        of_stage: Scored = {}
        for one in manifest["result"]["files"]:
            _, names = of_stage.setdefault((one["file"], one["sha256"]), (stage, []))
            names.append(one["scores"])
        found |= of_stage
    return found


def copy_scores(dump: Stage, scores: Scored, output: str, store: Store) -> list[str]:
    """Copy the scores of a dump's files to a folder or address; return their names there."""
    copied: dict[str, None] = {}
    for file in dump.parameters["files"]:
        stage, names = scores[file["name"], file["sha256"]]
        for name in names:
            stem, ending = name.split(".scores.")
            number, target = 1, name
            while target in copied:
                number += 1
                target = f"{stem}-{number}.scores.{ending}"
            copied[target] = None
            with storage.atomic_path(storage.join_path(output, target)) as path:
                shutil.copyfile(store.fetch(stage, name) / name, path)
    return list(copied)
