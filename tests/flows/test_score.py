"""What the stages of `score` are made of, and what is left out because it was scored before."""

import shutil

import pandas as pd
import pytest
from mlflow import MlflowClient

from amazon_electra.flows.cli import main
from amazon_electra.flows.configuration.form import Scoring
from amazon_electra.flows.servers.stock import resolve_mlflow_uri
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
from amazon_electra.model.tracking.registry import name_model
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


def test_a_model_folder_scores_without_a_registry(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = write_network(tmp_path / "model")
    (tmp_path / "new.csv").write_text("order,text\n7,good\n8,\n")
    words = ["score", "--model", str(model), "--dump", "new.csv", "--id", "order"]
    assert main.run_words([*words, "--format", "csv"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"scores      {tmp_path / 'scores'}: 1 of 2 records have a label",
        "            1 no text",
    ]
    rows = pd.read_csv(tmp_path / "scores" / "new.scores.csv")
    assert list(rows["id"]) == [7, 8]
    assert list(rows["text"].fillna("")) == ["good", ""]
    assert not (tmp_path / "store").exists()


def test_a_dry_run_of_a_run_leaves_no_store(tmp_path, capsys):
    for dump in ("sample:300", str(tmp_path / "own.csv")):
        lines = "".join(f"kettle {i},{i % 5 + 1}\n" for i in range(300))
        (tmp_path / "own.csv").write_text("text,stars\n" + lines)
        words = ["run", "--dump", dump, "--store", str(tmp_path / "store"), "--recipe", "sample"]
        assert main.run_words([*words, "--dry-run"]) == 0
        assert "stages to do" in capsys.readouterr().out
        assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_the_flow_scores_with_the_champion_and_leaves_out_what_it_has_scored(
    store, tmp_path, prefect_home, mlflow_template, monkeypatch
):
    from amazon_electra.flows.score import score

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (store.root / "mlflow").mkdir()
    shutil.copy(mlflow_template, store.root / "mlflow" / "mlflow.db")
    client = MlflowClient(resolve_mlflow_uri(store.root), resolve_mlflow_uri(store.root))
    name, tags = name_model("polarity"), {"model": MODEL.fingerprint, "task": "polarity"}
    client.create_registered_model(name)
    client.create_model_version(name, str(tmp_path), tags=tags)
    client.set_registered_model_alias(name, "champion", "1")
    for number in (1, 2):
        (tmp_path / f"new-{number}.csv").write_text("order_id,text\n7,good\n8,bad\n")
        form = Scoring(dump={"paths": [str(tmp_path / "new*.csv")]}, store=store.address)
        made = score(**{name: getattr(form, name) for name in Scoring.model_fields})
        assert made["files"] == [f"new-{n}.scores.csv" for n in range(1, number + 1)]
        assert len(pd.read_csv(store.root / "scored" / made["files"][-1])) == 2
        assert len(list(store.root.glob("scores/*/manifest.json"))) == number
