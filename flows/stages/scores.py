"""The scores of a dump: a row with label and probabilities for every record of its files."""

import shutil
from dataclasses import dataclass, replace
from typing import Any

from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from beam_jobs.core.files import choose_free_name
from flows.configuration.form import Scoring
from flows.runner.stage_runner import StageMaker
from flows.servers import mlflow_server
from flows.stages.dump import format_options, list_dump, list_reading_options, locate_dump
from flows.stages.versions import VERSIONS
from flows.store.store import ExistingStage, Stage, Store
from model.tracking.registry import Registry

Scored = dict[tuple[str, str], tuple[Stage, list[str]]]
"""The stage and its files of scores by the name and SHA-256 of the file that was scored."""


@dataclass(frozen=True)
class RegisteredModel:
    """A version of the registry."""

    version: str
    fingerprint: str
    """Of the stage with its folder."""
    reads_titles: bool = True
    """Whether its corpus has them."""


def find_model(alias: str, store: Store) -> RegisteredModel:
    """Return the registered model with an alias; UserError where there is none in this store."""
    tags = Registry(mlflow_server.resolve_mlflow_uri(store.root)).find_model(alias)
    manifest = store.read_manifest("model", tags["model"])
    if manifest is None:
        raise UserError(
            f"model.alias: {alias}, version {tags['version']}, is of another store than "
            f"{store.address}; name that one with --store"
        )
    corpora = [m for _, m in store.trace_lineage(manifest) if m["stage"] == "corpus"]
    reads_titles = not corpora or corpora[0]["parameters"].get("title") != "false"
    return RegisteredModel(tags["version"], tags["model"], reads_titles)


def make_scores(model: RegisteredModel, form: Scoring, new: Stage, make: StageMaker) -> Stage:
    """Make the scores of those files of the dump that have none; without any, its listing alone."""
    if not new.result["files"]:
        return make(list_dump(form.dump, make))
    dump, source = make(new), ExistingStage("model", 0, {}, known=model.fingerprint)
    return make(
        Stage(
            "scores",
            VERSIONS["scores"],
            list_parameters(model, form),
            {"dump": dump, "model": source},
            "beam_jobs.scoring_job",
            lambda store, folder: [
                *["--model", str(store.fetch(source)), "--model-version", model.version],
                *["--input", *locate_dump(dump, store), "--output", str(folder)],
                *["--title", str(model.reads_titles).lower(), *list_job_options(form)],
            ],
        )
    )


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


def list_parameters(model: RegisteredModel, form: Scoring) -> dict[str, Any]:
    """Return what decides the scores beside the model and the dump."""
    return {
        "version": model.version,
        "precision": form.model.precision,
        **form.scores.model_dump(),
        "reading": list_reading_options(form.dump),
    }


def find_scores(model: RegisteredModel, form: Scoring, store: Store) -> Scored:
    """Return all scores that the store has of this model, as the form wants them."""
    wanted = "scores", VERSIONS["scores"], list_parameters(model, form), model.fingerprint
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
            target = choose_free_name(stem, f".scores.{ending}", copied)
            copied[target] = None
            with storage.atomic_path(storage.join_path(output, target)) as path:
                shutil.copyfile(store.fetch(stage, name) / name, path)
    return list(copied)
