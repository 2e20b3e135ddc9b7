"""Every shipped study from a dump to its report: with all its arms, tasks and comparisons, on few
labels after few steps. Its jobs are the real ones, run within this process, which saves two hundred
starts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from flows.configuration.settings import fill_parameters
from flows.configuration.study_file import StudyChoice
from flows.runner import stage_runner
from flows.runner.pools.maker import choose_pool
from flows.runner.pools.order import Order, read_order, write_order
from flows.runner.stage_runner import Plan, StageRunner
from flows.runner.store import Stage, Store
from flows.studies.study_reading import (
    find_study_file,
    list_shipped_studies,
    list_variables,
    load_study,
    read_yaml,
)
from flows.study import build_study_graph
from model.evaluation import latency
from model.tracking.mlflow_run import Tracking
from tests.flows.made import run_here
from tests.flows.studies.loaded import write_study_data
from tests.model.encoders.checkpoints import write_checkpoint

SMALL = {"n_dev": 8, "n_test": 16, "epochs": 1, "trials": 2, "seeds": [0]}
SMALL |= {"pretraining_seeds": [0]}
"""What these settings are here, wherever a study names them."""


def shrink(part):
    """Return the content of a study file with less of everything."""
    if isinstance(part, list):
        return [shrink(one) for one in part]
    if not isinstance(part, dict):
        return part
    found = {
        name: SMALL[name] if name in SMALL and not isinstance(value, dict) else shrink(value)
        for name, value in part.items()
    }
    if isinstance(found.get("steps"), int):
        found["steps"] = 2 + found["steps"] // 8000  # those of another arm stay others
    if isinstance(found.get("n_train"), int):
        found["n_train"] = 10 + found["n_train"].bit_length()  # and so do those of another task
    if isinstance(found.get("learning_rates"), list):
        found["learning_rates"] = found["learning_rates"][:1]
    return found


@dataclass
class Maker(Plan):
    """Makes the stages one after the other, without Prefect, of what a worker elsewhere is told."""

    def __post_init__(self) -> None:
        self._runner = StageRunner(self.store, [], Tracking("sqlite:///"))

    def __call__(self, stage: Stage) -> Stage:
        self._runner.complete_chain(self._cross([stage]))
        return super().__call__(stage)

    def make_side_by_side(self, chains: Sequence[Sequence[Stage]], at_once: int) -> None:
        for chain in chains:
            self._runner.complete_chain(self._cross(chain))

    def _cross(self, chain: Sequence[Stage]) -> list[Stage]:
        if not choose_pool(chain[0], "accelerator"):
            return list(chain)
        told = write_order(chain, self.store).model_dump_json(exclude_defaults=True)
        crossed = read_order(Order(**json.loads(told)), self.store)
        assert [one.fingerprint for one in crossed] == [one.fingerprint for one in chain]
        return crossed


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """The tasks of real_reviews and general text; all studies share one store."""
    return write_study_data(tmp_path_factory.mktemp("shipped"))


@pytest.mark.parametrize("name", list_shipped_studies())
def test_it_goes_from_the_dump_to_its_report(name, place, tmp_path, monkeypatch):
    monkeypatch.setattr(stage_runner, "run_job", run_here)
    monkeypatch.setattr(latency, "BATCHES", 3)
    written = shrink(read_yaml(find_study_file(name)))
    file = tmp_path / f"{name}.yaml"
    file.write_text(yaml.safe_dump(written, allow_unicode=True))
    variables = set(list_variables(written))
    own = {task: str(place / task) for task in ("epqa", "imdb", "sst2", "subjqa")}
    own = {task: data for task, data in own.items() if task in variables}
    general = [str(place / "general.txt")] if "general_shards" in variables else []
    choice = StudyChoice(file=str(file), variables=own, general_text=general, at_once=1)
    pretrains = bool({"shards", "encoder"} & variables)
    settings = ["shards.max_length=96"] if pretrains else []
    if "origin" in variables:
        published = write_checkpoint(
            place / "published", max_position_embeddings=128, num_hidden_layers=3
        )
        settings.append(f"pretraining.start_from={published}")
    else:
        settings.append("vocabulary.size=1000")
    if {"steps", "encoder"} & variables:
        settings.append("pretraining.steps=2")
    store = str(place / "store")
    parameters = fill_parameters(settings, dump={"paths": ["sample:1200"]}, store=store)
    maker = Maker(Store(store))
    made = build_study_graph(load_study(parameters, choice))(parameters, maker)

    report = json.loads((maker.store.folder(made) / "report.json").read_text())
    arms, tasks = (
        [one["name"] for one in written["arms"]],
        [t.get("title", t["task"]) for t in written["tasks"]],
    )
    assert {(row["arm"], row["task"]) for row in report["results"]} == {
        (arm, task) for arm in arms for task in tasks
    }
    pairs = written.get("comparisons") or [[arms[0], arm] for arm in arms[1:]]
    assert {(d["a"], d["b"], d["task"]) for d in report["differences"]} == {
        (*pair, task) for pair in pairs for task in tasks
    }
    assert (maker.store.folder(made) / "report.html").stat().st_size > 10_000
    if "origin" in variables:
        text = (maker.store.folder(made) / "report.md").read_text()
        assert ("tokens per word" in text) == pretrains
        assert "nobody here can tell whether texts that are tested on were among it" in text
        assert "was trained on is unknown" not in text, "a student's encoder is its teacher's"
