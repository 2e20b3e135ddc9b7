"""The scores of a dump: a row with label and probabilities for every record of its files."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.config import SCORES_VERSION, CorpusConfig, ScoringConfig
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import choose_free_name
from amazon_electra.flows.configuration.form import Scoring
from amazon_electra.flows.servers import stock
from amazon_electra.flows.stages.dump import DumpListing, ListedDump, locate_dump
from amazon_electra.flows.store.group import Group, Groups
from amazon_electra.flows.store.stage import ExistingStage, Resources, Stage, dict_of
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking import registry

Scored = dict[tuple[str, str], list[tuple[Stage, dict[str, Any]]]]
"""The stage, and what it counted of each file of scores, by the name and SHA-256 of the file that
was scored."""


@dataclass(frozen=True)
class RegisteredModel:
    """A version of the registry."""

    version: str
    fingerprint: str
    """Of the stage with its folder."""
    task: str = ""
    role: str = "champion"
    reads_titles: bool = True
    """Whether its corpus has them."""
    max_characters: int = CorpusConfig().max_characters
    """Of a title, in its corpus."""


def find_models(form: Scoring, store: Store) -> list[RegisteredModel]:
    """Return the registered model of each task, or of `model.task`: that with an alias, or else the
    champion or the newest. UserError where there is none in this store.
    """
    uri, found = stock.resolve_mlflow_uri(store.root), []
    for tags in registry.find_models(uri, form.model.alias, form.model.task):
        manifest = store.read_manifest(f"model/{tags['model']}")
        if manifest is None:
            raise UserError(
                f"version {tags['version']} of {tags['task']} is of another store than "
                f"{store.address}; name that one with `store`",
                "model.alias",
            )
        corpora = [m for _, m in store.trace_lineage(manifest) if m["stage"] == "corpus"]
        about = {**dict(CorpusConfig()), **(corpora[0]["parameters"] if corpora else {})}
        own = tags["version"], tags["model"], tags["task"], tags["role"]
        found.append(RegisteredModel(*own, about["title"], about["max_characters"]))
    titled = [one.task for one in found if one.reads_titles]
    if 0 < len(titled) < len(found):
        why = f"only some models read titles ({', '.join(titled)}): name one"
        raise UserError(why, "model.task")
    return found


def describe_models(models: Sequence[RegisteredModel]) -> str:
    """Return the version of each model and why it is taken."""
    return ", ".join(f"{one.task} version {one.version} ({one.role})" for one in models)


class Scores(Stage):
    """`dump` and `model` → files of scores, a row for every record."""

    name, version, Config = "scores", SCORES_VERSION, ScoringConfig
    headline = ("read", "scored")
    ends_run = True

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.beam_jobs.scoring_job import score

        return score(
            self.config,
            [str(store.fetch(stage)) for name, stage in self.inputs.items() if name != "dump"],
            locate_dump(self.inputs["dump"], store),
            str(folder),
            beam_options=self.resources.beam_options,
        )


def graph(models: Sequence[RegisteredModel], form: Scoring, dump: Stage, new: Stage) -> Groups:
    """Listing → scores of the `new` files, which have none; without any, the listing alone."""
    if not new.result["files"]:
        yield Group.of(dump)
        return
    yield Group.of(new)
    config, resources = build_config(models, form), Resources(workers=form.model.workers)
    yield Group.of(Scores(config, {"dump": new, **name_inputs(models)}, resources=resources))


def name_inputs(models: Sequence[RegisteredModel]) -> dict[str, Stage]:
    """Return the inputs of the scores that are models, in the order of their columns."""
    return {
        f"model {number}": ExistingStage("model", known=model.fingerprint)
        for number, model in enumerate(models, 1)
    }


def leave_out_files(dump: ListedDump, known: Scored) -> ListedDump:
    """Return the dump without the files that have scores."""
    listed = zip(dump.config.files, dump.result["paths"], strict=True)
    new = [(file, path) for file, path in listed if (file.name, file.sha256) not in known]
    files, paths = tuple(file for file, _ in new), [path for _, path in new]
    counts = {"files": len(files), "bytes": sum(file.size for file in files), "paths": paths}
    return replace(dump, config=DumpListing(files=files), result={**dump.result, **counts})


def build_config(models: Sequence[RegisteredModel], form: Scoring) -> ScoringConfig:
    """Return what decides the scores beside the models and the dump; without models, of folders."""
    default = CorpusConfig().max_characters
    return ScoringConfig(
        **form.dump.pick(ScoringConfig),
        model_version=tuple(model.version for model in models),
        title=all(model.reads_titles for model in models),
        max_characters=max((model.max_characters for model in models), default=default),
        precision=form.model.precision,
        output_format=form.scores.format,
        explain=form.scores.explain,
    )


def find_scores(models: Sequence[RegisteredModel], form: Scoring, store: Store) -> Scored:
    """Return all scores that the store has of these models, as the form wants them."""
    inputs = {name: stage.fingerprint for name, stage in name_inputs(models).items()}
    wanted = Scores.name, Scores.version, dict_of(build_config(models, form)), inputs
    found: Scored = {}
    for made in store.list_manifests():
        read = {n: one["fingerprint"] for n, one in made["inputs"].items() if n != "dump"}
        if (made["stage"], made["version"], made["parameters"], read) != wanted:
            continue
        stage, of_stage = ExistingStage("scores", known=made["fingerprint"]), Scored()
        for part in made["result"]["files"]:
            of_stage.setdefault((part["file"], part["sha256"]), []).append((stage, part))
        found |= of_stage
    return found


def describe_drift(files: Sequence[Mapping[str, Any]]) -> str:
    """Return a line about how files differ from the model's test reviews, "" if unknown."""
    known = [(one["file"], task, d) for one in files for task, d in one.get("drift", {}).items()]
    if not known:
        return ""
    drifted = [one for one in known if one[2]["findings"]]
    file, task, drift = (drifted or known)[0]
    about = f", {task}" if len({task for _, task, _ in known}) > 1 else ""
    differ, every = ({file for file, *_ in some} for some in (drifted, known))
    total = f"{len(differ)} of {len(every):,} files differ; " if len(every) > 1 else ""
    return f"{total}{file}{about}: {drift['says']}"


def copy_scores(dump: ListedDump, scores: Scored, output: str, store: Store) -> list[str]:
    """Copy the scores of a dump's files to a folder or address; return their names there."""
    copied: dict[str, None] = {}
    for stage, part in list_parts(dump, scores):
        name = part["scores"]
        stem, ending = name.split(".scores.")
        target = choose_free_name(stem, f".scores.{ending}", copied)
        copied[target] = None
        with storage.atomic_path(storage.join_path(output, target)) as path:
            shutil.copyfile(store.fetch(stage, name) / name, path)
    return list(copied)


def list_parts(dump: ListedDump, scores: Scored) -> list[tuple[Stage, dict[str, Any]]]:
    """Return the scores of a dump's files, in their order."""
    return [one for file in dump.config.files for one in scores[file.name, file.sha256]]
