"""The champion over a dump: a label and its probability for every review."""

from functools import partial
from typing import Any

from prefect import flow

from flows.configuration.form import Parameters, Scoring, ScoringModel
from flows.configuration.form_tools import take_fields
from flows.runner.logs import FAILURE_HOOKS
from flows.runner.prefect_tasks import call_with_retries
from flows.runner.stage_runner import StageMaker
from flows.runs.graph_run import name_run, read_flow_parameter, run_graph
from flows.servers import mlflow_server
from flows.stages.dump import format_options, list_dump, list_reading_options
from flows.stages.versions import VERSIONS
from flows.store.store import ExistingStage, Stage, Store
from model.tracking.registry import Registry


def name_scoring_run() -> str:
    """Dump, model and date."""
    return name_run(f"labelled by the {read_flow_parameter('model', 'alias', 'champion')}")


@flow(name="score", flow_run_name=name_scoring_run, **FAILURE_HOOKS)
@take_fields(Scoring)
def score(**given: Any) -> dict[str, Any]:
    """Label every review of a dump with the champion."""
    form = Scoring(**given)
    find = partial(find_model_version, form.model.alias, Store(form.store))
    version = call_with_retries(form.model.alias, find)
    parameters = Parameters(dump=form.dump, store=form.store)
    return run_graph(build_scoring_graph(version, form.model), parameters)


def find_model_version(alias: str, store: Store) -> dict[str, str]:
    """Return version and tags of the model with this alias."""
    return Registry(mlflow_server.resolve_mlflow_uri(store.root)).find_scorer(alias)


def build_scoring_graph(version: dict[str, str], model: ScoringModel) -> Any:
    """Return the graph: dump and model → exported program → scores."""

    def graph(p: Parameters, make: StageMaker) -> Stage:
        dump = make(list_dump(p.dump, make))
        program = make(build_scorer_stage(version, model.precision))
        return make(
            build_scores_stage(
                version["version"],
                dump,
                program,
                model.workers,
                list_reading_options(p.dump),
            )
        )

    return graph


def build_scorer_stage(version: dict[str, str], precision: str) -> Stage:
    model = ExistingStage("finetuning", VERSIONS["finetuning"], {}, known=version["scorer"])
    return Stage(
        "scorer",
        VERSIONS["scorer"],
        {"precision": precision},
        {"model": model},
        "model.scorer",
        lambda store, folder: [
            *["--model", str(store.fetch(model)), "--output", str(folder)],
            *["--precision", precision],
        ],
    )


def read_program_digest(store: Store, program: Stage) -> str:
    """Return the SHA-256 of scorer.pt2 as the manifest of its stage records it.

    Whoever can change the stage's folder can change scorer.json too; the manifest was written when
    the program was exported from the model of the registry.
    """
    manifest = store.manifest(program)
    files = manifest["files"] if manifest else []
    return next(file["sha256"] for file in files if file["path"] == "scorer.pt2")


def build_scores_stage(
    version: str, dump: Stage, program: Stage, workers: int, reading: dict[str, Any]
) -> Stage:
    return Stage(
        "scores",
        VERSIONS["scores"],
        {"version": version, **reading},
        {"dump": dump, "scorer": program},
        "beam_jobs.scoring_job",
        lambda store, folder: [
            *["--scorer", str(store.fetch(program)), "--model-version", version],
            *["--scorer-sha256", read_program_digest(store, program)],
            *["--input", *dump.result["paths"], "--output", str(folder)],
            *format_options(reading),
            *(["--direct_num_workers", str(workers)] if workers else []),
        ],
    )
