"""The report: every comparison with its interval and test, the cost."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import list_changes, write_options
from amazon_electra.flows.stages.cells import Cell
from amazon_electra.flows.stages.origin import describe_origin, get_name, list_place_files
from amazon_electra.flows.stages.pretraining import ADAPTATIONS
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Manifest, Store
from amazon_electra.model.arms import ADAPTED
from amazon_electra.model.questions.of_model import SUSPICIOUS
from amazon_electra.model.report.inputs import ArmFacts, CellFacts, ReportInput, StageFacts
from amazon_electra.model.report.owner import COST

GIVEN = ("dump", "corpus", "origin")
"""Stages whose cost is that of no arm."""
STUDY = "study.json"
"""File of the report's folder with what it shows."""


class ReportConfig(Settings):
    """What decides a report besides the evaluations."""

    title: str


@dataclass(frozen=True)
class Report(Stage):
    """Evaluated cells → report.html, report.md and report.json, of the run's study.json."""

    describe: Callable[[Store], ReportInput] | None = None

    name, version = "report", 23
    Config: ClassVar[type[Settings]] = ReportConfig
    ends_run = True

    def prepare(self, store: Store, folder: Path) -> None:
        if self.describe:
            self.describe(store).write(folder / STUDY)

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.report.report import write_report

        return write_report(folder / STUDY, folder).content


class StudyConfig(Settings):
    """What decides the report of a study besides the evaluations."""

    study: dict[str, Any]


@dataclass(frozen=True)
class StudyReport(Report):
    """The report of a study."""

    name, version, Config = "study", 19, StudyConfig


@dataclass(frozen=True)
class RunFacts:
    """What the report of a run shows."""

    command: str
    """Gives it again."""
    made: Sequence[Stage]
    """Stages whose counts it shows, in the order of the graph."""
    encoder: Stage
    cells: Sequence[Cell]
    curve: Sequence[Cell] = ()
    """Cells with fewer labels."""
    models: Sequence[Stage] = ()
    failures: Sequence[str] = ()
    """Lines about cells that it goes without."""
    reading: str = ""
    """Clause about how much of the texts the networks read."""


def build_report_stage(recipe: str, dump: Stage, facts: RunFacts) -> Report:
    """Return the stage of the report of a run."""
    title = f"{dump.result['name']} with recipe {recipe}"
    if origin := find_stage(facts.made, "origin"):
        title += f" from {get_name(origin)}"
    inputs = {cell.finetuned.title: cell.evaluated for cell in (*facts.cells, *facts.curve)}
    inputs |= {"encoder": facts.encoder, **{model.title: model for model in facts.models}}
    describe = partial(describe_run, title, facts)
    return Report(ReportConfig(title=title), inputs, describe=describe)


def describe_run(title: str, facts: RunFacts, store: Store) -> ReportInput:
    """Return the run as the report's job reads it."""
    made, cells, origin = facts.made, facts.cells, find_stage(facts.made, "origin")
    files = ("results.json", SUSPICIOUS, COST)
    folders = [store.fetch(model, *files) for model in facts.models]
    if origin and folders:  # the question is what the model is worth
        model = read_json(folders[0] / "results.json")["arm"]
        cells = sorted(cells, key=lambda cell: cell.arm != model)
    arms = {cell.arm: cell for cell in reversed(cells)}
    names = list(dict.fromkeys(cell.arm for cell in cells))
    # those that differ in the encoder alone, adapted and as published
    pairs = [(arm, arm.replace(ADAPTED, "", 1)) for arm in names if origin and ADAPTED in arm]
    pairs = [pair for pair in pairs if pair[1] in names]
    first = [(names[0], other) for other in names[1:]]
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    return ReportInput(
        title=title,
        command=facts.command,
        store=store.address,
        arms=[_describe_arm(store, arms[name], tasks, facts.encoder) for name in names],
        comparisons=list(dict.fromkeys([*first, *pairs])) if pairs else [],
        cells=[describe_cell(store, cell) for cell in cells],
        curve=[describe_cell(store, cell) for cell in facts.curve],
        models=folders,
        reading=f"{facts.reading[:1].upper()}{facts.reading[1:]}." if facts.reading else "",
        failures=list(facts.failures),
        **describe_sources(store, made, [origin] if origin else []),
    )


def describe_sources(
    store: Store, made: Sequence[Stage], origins: Sequence[Stage]
) -> dict[str, Any]:
    """Return what a report says of the dump, of counts and of published encoders."""
    dump = find_stage(made, "dump")
    about = {"name": dump.result["name"], "fingerprint": dump.fingerprint} if dump else {}
    return {
        "dump": {**about, **dump.parameters} if dump else {},
        "synthetic": bool(dump and dump.result.get("synthetic")),
        "stages": [
            StageFacts(stage=known["title"], counts=known["result"])
            for stage in made
            if (known := store.manifest(stage))
        ],
        "origins": {one.fingerprint: describe_origin(store, one) for one in origins},
    }


def find_stage(made: Sequence[Stage], name: str) -> Stage | None:
    """Return the first of these stages that is of this kind, or None."""
    return next((stage for stage in made if stage.name == name), None)


def describe_cell(store: Store, cell: Cell) -> CellFacts:
    """Return what the report reads of a cell; its CPU seconds are those of its training and of all
    that it was made of, but the data and the published encoder, 0 where a stage does not say.
    """
    made = store.manifest(cell.finetuned)
    lineage = store.trace_lineage(made) if made else []
    costs = [one.get("cpu_seconds", 0.0) for _, one in lineage if one["stage"] not in GIVEN]
    return CellFacts(
        arm=cell.arm,
        task=cell.task,
        seed=cell.seed,
        labels=cell.labels,
        pretraining_seed=cell.pretraining_seed,
        evaluation=store.fetch(cell.evaluated),
        finetuned=store.fetch(cell.finetuned, "result.json"),
        cpu_seconds=round(sum(costs), 1) if all(costs) else 0.0,
    )


def format_command(asked: Parameters) -> str:
    """Return the command that gives this report again, as a shell reads it."""
    effort = ["--effort", asked.effort] if asked.effort != "auto" else []
    return shlex.join(["amazon-electra", "run", *list_options(asked), *effort])


def list_options(asked: Parameters, reads_dump: bool = True) -> list[str]:
    """Return the options that give a form again, without the name of a study's file."""
    left_out = ("dump.paths", "study.file")
    changes = {path: value for path, value in list_changes(asked).items() if path not in left_out}
    dump = ["--dump", *asked.dump.paths] if reads_dump else []
    general = ["--store", asked.store, "--recipe", asked.recipe]
    return [*dump, *general, *write_options(changes)]


def _describe_arm(store: Store, cell: Cell, tasks: list[str], trained: Stage) -> ArmFacts:
    """Return what the encoder of a cell's arm has seen, as far as the store shows it."""
    inputs = cell.finetuned.inputs
    # the adapted one's cells are of the published one where that was kept
    encoder = trained if ADAPTED in cell.arm else inputs.get("encoder")
    if encoder is None:
        return ArmFacts(name=cell.arm)
    made, held_out = store.manifest(encoder), None
    lineage = store.trace_lineage(made) if made else []
    origins = [one["fingerprint"] for _, one in lineage if one["stage"] == "origin"]
    if made and made["stage"] in ADAPTATIONS:
        held_out = tasks if is_held_out(store, made, inputs["data"]) else []
    return ArmFacts(
        name=cell.arm,
        data_known=held_out is not None,
        origin=origins[0] if origins else "",
        held_out=held_out,
    )


def is_held_out(store: Store, encoder: Manifest, data: Stage) -> bool:
    """Return whether the test texts of a task were kept out of all that an encoder was trained on:
    every corpus of it is `data`, or each file of `data` was withheld.
    """
    lineage = [made for _, made in store.trace_lineage(encoder)]
    corpora = [made for made in lineage if made["stage"] == "corpus"]
    if data.name == "corpus":
        return bool(corpora) and all(one["fingerprint"] == data.fingerprint for one in corpora)
    read = [*corpora, *(made for made in lineage if "general_text" in made["parameters"])]
    files = {store.digest(file) for file in list_place_files(Path(data.result["path"]))}
    return bool(corpora and files) and all(
        files <= set(made["parameters"].get("withhold", [])) for made in read
    )
