"""The report: every comparison with its interval and test, the cost."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.configuration.form import Parameters
from amazon_electra.flows.configuration.form_tools import write_options
from amazon_electra.flows.stages.finetuning import Finetuned
from amazon_electra.flows.stages.origin import describe_origin, get_name, list_place_files
from amazon_electra.flows.stages.pretraining import ADAPTATIONS
from amazon_electra.flows.store.flatten import list_changes
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Manifest, Store
from amazon_electra.model.arms import ADAPTED
from amazon_electra.model.questions.of_model import SUSPICIOUS
from amazon_electra.model.report.inputs import ArmFacts, CellFacts, ReportInput, StageFacts
from amazon_electra.model.report.owner import COST

GIVEN = ("dump", "corpus", "origin")  # stages whose cost is that of no arm
STUDY = "study.json"  # in the report's folder, with what it shows


class ReportConfig(Settings):
    """What decides a report besides the evaluations."""

    title: str = ""
    study: dict[str, Any] = Field(default={})


@dataclass(frozen=True)
class Report(Stage):
    """Evaluated cells → report.html, report.md and report.json, of the run's study.json."""

    describe: Callable[[Store], ReportInput] | None = None

    name, version, Config = "report", 23, ReportConfig
    ends_run = True

    def prepare(self, store: Store, folder: Path) -> None:
        if self.describe:
            self.describe(store).write(folder / STUDY)

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        from amazon_electra.model.report.report import write_report

        return write_report(folder / STUDY, folder).content


class StudyReport(Report):
    """The report of a study."""

    name, version = "study", 19


def build_report_stage(
    p: Parameters,
    dump: Stage,
    made: Sequence[Stage],
    encoder: Stage,
    cells: Sequence[Finetuned],
    curve: Sequence[Finetuned] = (),
    models: Sequence[Stage] = (),
    failures: Sequence[str] = (),
    reading: str = "",
) -> Report:
    """Return the stage of the report of a run. It shows the counts of the stages in `made`,
    `curve`, cells with fewer labels, `failures`, lines about cells that it goes without, and
    `reading`, a clause about how much of the texts networks read.
    """
    title = f"{dump.result['name']} with recipe {p.recipe}"
    if origin := {stage.name: stage for stage in made}.get("origin"):
        title += f" from {get_name(origin)}"
    inputs: dict[str, Stage] = {c.title: c.evaluation for c in (*cells, *curve)}
    inputs |= {"encoder": encoder, **{model.title: model for model in models}}

    def describe(store: Store) -> ReportInput:
        shown, pairs, files = list(cells), [], ("results.json", SUSPICIOUS, COST)
        folders = [store.fetch(model, *files) for model in models]
        if origin and folders:  # the question is what the model is worth
            best = read_json(folders[0] / "results.json")["arm"]
            shown.sort(key=lambda cell: cell.labels["arm"] != best)
        arms = group_by_arm(shown)
        names = list(arms)
        if origin:  # those that differ in the encoder alone, adapted and as published
            pairs = [
                (a, b) for a in names if ADAPTED in a if (b := a.replace(ADAPTED, "", 1)) in arms
            ]
        first = [(names[0], other) for other in names[1:]]
        return ReportInput(
            title=title,
            command=format_command(p, "run"),
            store=store.address,
            arms=[describe_arm(store, own) for own in arms.values()],
            comparisons=list(dict.fromkeys([*first, *pairs])) if pairs else [],
            cells=[describe_cell(store, cell) for cell in shown],
            curve=[describe_cell(store, cell) for cell in curve],
            models=folders,
            reading=f"{reading[:1].upper()}{reading[1:]}." if reading else "",
            failures=list(failures),
            **describe_sources(store, made, [origin] if origin else []),
        )

    return Report(ReportConfig(title=title), inputs, describe=describe)


def describe_sources(
    store: Store, made: Sequence[Stage], origins: Sequence[Stage]
) -> dict[str, Any]:
    """Return what a report says of the dump, of counts and of published encoders."""
    dump = {stage.name: stage for stage in made}.get("dump")
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


def group_by_arm(cells: Sequence[Finetuned]) -> dict[str, list[Finetuned]]:
    """Return the cells of each arm, in their order."""
    found: dict[str, list[Finetuned]] = {}
    for cell in cells:
        found.setdefault(cell.labels["arm"], []).append(cell)
    return found


def describe_cell(store: Store, cell: Finetuned) -> CellFacts:
    """Return what the report reads of a cell; its CPU seconds are those of its training and of all
    that it was made of, but the data and the published encoder, 0 where a stage does not say.
    """
    made, known = store.manifest(cell), dict[str, Any](cell.labels)
    lineage = store.trace_lineage(made) if made else []
    costs = [one.get("cpu_seconds", 0.0) for _, one in lineage if one["stage"] not in GIVEN]
    return CellFacts(
        **known,
        evaluation=store.fetch(cell.evaluation),
        finetuned=store.fetch(cell, "result.json"),
        cpu_seconds=round(sum(costs), 1) if all(costs) else 0.0,
    )


def format_command(asked: Parameters, *command: str, reads_dump: bool = True) -> str:
    """Return the command that gives this report again, as a shell reads it."""
    left_out = ("dump.paths", "study.file")
    changes = {path: value for path, value in list_changes(asked).items() if path not in left_out}
    dump = ["--dump", *asked.dump.paths] if reads_dump else []
    general = ["--store", asked.store, "--recipe", asked.recipe]
    effort = ["--effort", asked.effort] if asked.effort != "auto" else []
    words = ["amazon-electra", *command, *dump, *general, *write_options(changes), *effort]
    return shlex.join(words)


def describe_arm(store: Store, cells: Sequence[Finetuned]) -> ArmFacts:
    """Return what the encoder of an arm with these cells has seen, as far as the store shows it,
    and what its pre-training cost.
    """
    name, encoder = cells[0].labels["arm"], cells[0].inputs.get("encoder")
    made = store.manifest(encoder) if encoder else None
    lineage = store.trace_lineage(made) if made else []
    origin = next((one["fingerprint"] for _, one in lineage if one["stage"] == "origin"), "")
    if not made or made["stage"] not in ADAPTATIONS:
        return ArmFacts(name=name, origin=origin, data_known=encoder is None)
    data = {cell.labels["task"]: cell.inputs["data"] for cell in cells}
    held_out = [task for task, one in data.items() if is_held_out(store, made, one)]
    cost = {one: made["result"].get(one) for one in ("tokens", "matrix_flops", "seconds")}
    return ArmFacts(name=name, origin=origin, data_known=True, held_out=held_out, **cost)


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
