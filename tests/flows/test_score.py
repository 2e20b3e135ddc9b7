"""What the stages of `score` are made of, and what is left out because it was scored before."""

import shutil

import pandas as pd
import pytest

from amazon_electra.flows.configuration.form import Scoring
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.stages.scores import (
    RegisteredModel,
    copy_scores,
    find_scores,
    graph,
    leave_out_files,
)
from amazon_electra.flows.store.group import list_stages
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Store
from tests.beam_jobs.scoring.models import write_network
from tests.flows.calls import cross

MODEL = RegisteredModel("3", "f" * 16, "polarity")


@pytest.fixture
def store(tmp_path):
    """One that has the model."""
    store = Store(tmp_path / "store")
    model = ExistingStage("model", 0, {}, known=MODEL.fingerprint)
    write_network(store.folder(model))
    store.publish(model, {})
    return store


def plan(form, store):
    """The form's last stage as it would be made."""
    new = leave_out_files(build_dump_stage(form.dump, store), find_scores([MODEL], form, store))
    dump = build_dump_stage(form.dump, store)
    return list_stages(graph([MODEL], form, dump, new), store)[-1][0]


def make(stage, store):
    """Make scores as a run makes them, but in this process."""
    store.publish(stage.inputs["dump"], stage.inputs["dump"].result)
    store.publish(stage, cross(stage).run(store, store.folder(stage)))


def test_only_new_files_are_scored_and_all_are_copied(store, tmp_path):
    def fill(**given):
        dump = {"paths": [str(tmp_path / "new*.csv")]}
        return Scoring(dump=dump, store=store.address, **given)

    (tmp_path / "new-1.csv").write_text("order_id,text\n7,good\n8,bad\n")
    form = fill()
    make(plan(form, store), store)
    assert plan(form, store).name == "dump", "nothing is new"
    (tmp_path / "new-2.csv").write_text("order_id,text\n9,fine\n")
    second = plan(form, store)
    assert [file["name"] for file in second.inputs["dump"].parameters["files"]] == ["new-2.csv"]
    make(second, store)
    for changed in (
        {"scores": {"explain": True}},
        {"dump": {**form.dump.model_dump(), "encoding": "cp1252"}},
    ):
        other = plan(Scoring(**{**form.model_dump(), **changed}), store)
        assert other.inputs["dump"].result["files"] == 2, "another question"
    shutil.copy(tmp_path / "new-1.csv", tmp_path / "new-3.csv")
    third = plan(form, store)
    assert [file["name"] for file in third.inputs["dump"].parameters["files"]] == ["new-3.csv"]
    make(third, store)
    dump = build_dump_stage(form.dump, store)
    output = str(tmp_path / "output")
    copied = copy_scores(dump, find_scores([MODEL], form, store), output, store)
    assert copied == [f"new-{number}.scores.csv" for number in (1, 2, 3)]
    rows = pd.concat(pd.read_csv(tmp_path / "output" / name) for name in copied)
    assert list(rows["order_id"]) == [7, 8, 9, 7, 8]
    assert rows["polarity.predicted"].notna().all()
