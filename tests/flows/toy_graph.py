"""A graph of small real jobs that goes the way of the real one: through the same tasks, servers,
store and tracking.

`python -m tests.flows.toy_graph STORE '{"pretraining": {"how": "bug"}}'` runs it as
`amazon-electra run` does.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic import Field

from amazon_electra.beam_jobs.core.plugins import register_module
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.servers import stock
from amazon_electra.flows.servers.access import TAG, is_healthy
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store.stage import Group, Groups, Stage, register_stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking import mlflow_run
from tests.flows.forms import fill_parameters
from tests.flows.job import run as run_job
from tests.patience import PATIENCE_SECONDS


class ToyConfig(Settings):
    """How a toy job behaves; `steps` and `title` decide its content."""

    steps: int = 3
    title: str = ""
    ways: dict[str, Any] = Field(default={})


class ToyStage(Stage):
    """A stage that the toy job makes."""

    name, version, Config = "toy", 1, ToyConfig

    @property
    def parameters(self) -> dict[str, Any]:
        return {"steps": self.config.steps, "title": self.config.title}

    def run(self, store: Store, folder: Path) -> dict[str, Any]:
        return run_job(folder, **self.config.ways)


class ToyCorpus(ToyStage):
    name = "toy-corpus"


class ToyTraining(ToyStage):
    name = "toy-pretraining"
    tracked = True
    takes_accelerator = True


class ToyFinetuning(ToyStage):
    name = "toy-finetuning"
    tracked = True
    takes_accelerator = True


class ToyEvaluation(ToyStage):
    name = "toy-evaluation"


class ToySmall(ToyStage):
    name = "toy-small"
    runs_beside = True


class ToyReport(ToyStage):
    name = "toy-report"
    ends_run = True


for kind in (ToyStage, ToyCorpus, ToyTraining, ToyFinetuning, ToyEvaluation, ToySmall, ToyReport):
    register_stage(kind)


def job(name: str, inputs: dict[str, Stage], ways: dict[str, Any], title: str = "") -> ToyStage:
    """A stage made by the toy job; `ways` are its options, part of the fingerprint only as far as
    the content goes.
    """
    kind = Stage.registry[f"toy-{name}" if name != "toy" else name]
    config = ToyConfig(steps=int(ways.get("steps", 3)), title=title, ways=ways)
    return kind(config, inputs, title=title or name)


def toy_graph(ways: dict[str, dict[str, Any]]):
    """dump → corpus → pretraining → two cells side by side → report; `ways` says how each job
    behaves.
    """

    def make(name: str, title: str = "", **inputs: Stage) -> ToyStage:
        return job(name, inputs, ways.get(name, {}), title)

    def graph(reviews: Stage) -> Groups:
        corpus = make("corpus", dump=reviews)
        encoder = make("pretraining", corpus=corpus)
        for stage in (reviews, corpus, encoder):
            yield Group.of(stage)
        cells = [
            (
                make("finetuning", f"cell {seed}", encoder=encoder),
                make("evaluation", f"cell {seed} test", encoder=encoder),
            )
            for seed in (0, 1)
        ]
        yield Group(cells, 2)
        yield Group.of(make("report", encoder=encoder, cell=cells[1][1]))

    return graph


def run_toy(store: Path, ways: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One run of the toy graph in a Prefect flow of the real one's name; a server must be there."""
    from prefect import flow

    from amazon_electra.flows.runs.graph_run import name_run, run_graph

    @flow(name="domain-adaptation", flow_run_name=name_run)
    def toy(dump: dict[str, Any], recipe: str, store: str) -> dict[str, Any]:
        p, made = fill_parameters(dump=dump, recipe=recipe, store=store), Store(store)
        reviews = build_dump_stage(p.dump, made)
        return run_graph(lambda _: toy_graph(ways)(reviews), p, made, reviews)

    return toy(dump={"paths": ["sample:100"]}, recipe="sample", store=str(store))


def be_patient_with_mlflow(store: Path) -> None:
    """Let the end of a run wait for an MLflow that is there, however slow the machine is."""
    uri = stock.resolve_mlflow_uri(store)
    if not uri.startswith("http") or is_healthy(f"{uri}/health"):
        mlflow_run.CLOSE_SECONDS = PATIENCE_SECONDS


def main() -> None:
    from amazon_electra.flows.runner.processes import interrupt_on_signals
    from amazon_electra.flows.servers import stock

    interrupt_on_signals(signal.SIGTERM)
    store, ways = Path(sys.argv[1]).resolve(), json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    register_module("tests.flows.toy_graph")
    stock.connect_prefect(store)
    be_patient_with_mlflow(store)
    from prefect import tags

    with tags(TAG):
        print(json.dumps(run_toy(store, ways)))


if __name__ == "__main__":
    main()
