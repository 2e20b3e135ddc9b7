"""The scores of a dump: a row with label and probabilities for every record of its files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.config import SCORES_VERSION, CorpusConfig, ScoringConfig
from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.flows.configuration.form import Scoring
from amazon_electra.flows.servers import stock
from amazon_electra.flows.stages.dump import locate_dump
from amazon_electra.flows.store.stage import ExistingStage, Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking import registry


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


def find_models(form: Scoring, store: Store) -> list[RegisteredModel]:
    """Return the model of each task, or of `model.task`: its champion, or else its newest one.
    UserError where there is none in this store.
    """
    uri, found = stock.resolve_mlflow_uri(store.root), []
    for tags in registry.find_models(uri, form.model.task):
        manifest = store.read_manifest(f"model/{tags['model']}")
        about = f"version {tags['version']} of {tags['task']} is of another store"
        why = f"{about} than {store.address}; name that one with `store`"
        require(manifest, why, "store")
        corpora = [m for _, m in store.trace_lineage(manifest or {}) if m["stage"] == "corpus"]
        read = {**dict(CorpusConfig()), **(corpora[0]["parameters"] if corpora else {})}
        own = tags["version"], tags["model"], tags["task"], tags["role"]
        found.append(RegisteredModel(*own, read["title"], read["max_characters"]))
    titled = [one.task for one in found if one.reads_titles]
    why = f"only some models read titles ({', '.join(titled)}): name one"
    require(len(titled) in (0, len(found)), why, "model.task")
    return found


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
        )


def build_scores_stage(models: Sequence[RegisteredModel], form: Scoring, dump: Stage) -> Scores:
    """Return the scores of a dump by these models, in the order of their columns."""
    inputs: dict[str, Stage] = {
        f"model {number}": ExistingStage("model", model.fingerprint)
        for number, model in enumerate(models, 1)
    }
    return Scores(build_config(models, form), {"dump": dump, **inputs})


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


def describe_drift(files: Sequence[Mapping[str, Any]]) -> str:
    """Return a line about the first file that differs from the model's test reviews, or else about
    the first; "" if nothing is known.
    """
    known = [(one["file"], task, d) for one in files for task, d in one.get("drift", {}).items()]
    known.sort(key=lambda one: not one[2]["findings"])
    return "".join(f"{file}, {task}: {drift['says']}" for file, task, drift in known[:1])
