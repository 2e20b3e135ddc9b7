"""The champion over a dump: a label and its probability for every review."""

from functools import partial
from typing import Any

from prefect import flow
from pydantic import Field

from beam_jobs.command import UserMistake
from flows import servers
from flows.completion import Maker
from flows.failures import NOTED
from flows.parameters import Dump, Parameters, Section
from flows.stages import dump as dump_stage
from flows.store import Known, Stage, Store
from flows.tasks import asked, chosen, going_through, titled
from model.registry import Registry


class Scored(Section):
    """Which model of the registry labels the reviews."""

    alias: str = Field(default="champion", min_length=1, description="champion, or challenger")
    workers: int = Field(default=0, ge=0, le=1024, description="Processes of the Beam job; 0: as many as it takes")


def run_name() -> str:
    """Dump, model and date."""
    return titled(f"labelled by the {chosen('model', 'alias', 'champion')}")


@flow(name="score", flow_run_name=run_name, **NOTED)
def score(
    model: Scored = Scored(),  # noqa: B008 - frozen, and the form shows what it holds
    dump: Dump = Dump(),  # noqa: B008
    store: str = "store",
) -> dict[str, Any]:
    """Label every review of a dump with the champion.

    Args:
        model: Which model of the registry labels the reviews.
        dump: The reviews to label.
        store: Folder of all results; a stage it holds is not made again.
    """
    version = asked(model.alias, partial(registered, model.alias, Store(store)))
    return going_through(scoring_graph(version, model.workers), Parameters(dump=dump, store=store))


def registered(alias: str, store: Store) -> dict[str, str]:
    """Version and tags of the model with this alias."""
    version = Registry(servers.mlflow_uri(store.root)).having(alias)
    if not version.get("scorer"):
        raise UserMistake(
            f"model.alias: no {alias} in the registry; run domain-adaptation with promotion.mode=automatic"
        )
    return version


def scoring_graph(version: dict[str, str], workers: int) -> Any:
    """Dump and model → exported program → scores."""

    def graph(p: Parameters, make: Maker) -> Stage:
        reviews = make(make.dump(p))
        program = make(exported(version))
        return make(scores(version["version"], reviews, program, workers, dump_stage.reading(p.dump)))

    return graph


def exported(version: dict[str, str]) -> Stage:
    model = Known("finetuning", 0, {}, known=version["scorer"])
    return Stage(
        "scorer",
        2,
        {},
        {"model": model},
        "model.scorer",
        lambda store, folder: ["--model", str(store.folder(model)), "--output", str(folder)],
    )


def scores(version: str, reviews: Stage, program: Stage, workers: int, reading: dict[str, Any]) -> Stage:
    return Stage(
        "scores",
        2,
        {"version": version, **reading},
        {"dump": reviews, "scorer": program},
        "beam_jobs.scoring_job",
        lambda store, folder: [
            *["--scorer", str(store.folder(program)), "--model_version", version],
            *["--input", *reviews.result["paths"], "--output", str(folder)],
            *dump_stage.as_words(reading),
            *(["--direct_num_workers", str(workers)] if workers else []),
        ],
    )
