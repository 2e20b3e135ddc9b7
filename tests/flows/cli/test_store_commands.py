"""`runs`, `show` and `prune`: what a store holds, and what may go from it."""

import json
import shutil

import pytest
from mlflow import MlflowClient

from amazon_electra.flows.cli import main
from amazon_electra.flows.servers.stock import resolve_mlflow_database
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import RUN_MARK, list_runs, mark_run
from amazon_electra.model.tracking.mlflow_run import Tracking
from amazon_electra.model.tracking.registry import Registry, name_model
from tests.flows.fakes import FakeStage


def publish(store, stage, **files):
    folder = store.folder(stage)
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in files.items():
        (folder / name).write_bytes(b"x" * size)
    store.publish(stage, dict(stage.result), seconds=1.0)
    return stage


@pytest.fixture
def store(tmp_path):
    """Two runs of one dump, and a stage that did not end."""
    store = Store(tmp_path / "store")
    dump = publish(store, FakeStage("dump", 1, {}, result={"name": "kettles", "files": 1}))
    corpus = publish(store, FakeStage("corpus", 1, {}, {"dump": dump}, result={"kept": 9}), a=1000)
    for steps in (10, 20):
        parameters = {"recipe": "sample", "steps": steps}
        encoder = FakeStage(
            "pretraining", 1, parameters, {"corpus": corpus}, result={"steps": steps}
        )
        publish(store, encoder, model=2000)
        answer = {"answer": f"{steps} steps are enough"}
        publish(store, FakeStage("report", 1, {}, {"encoder": encoder}, result=answer), page=100)
    (store.root / "finetuning" / "0123456789abcdef").mkdir(parents=True)
    return store


def run(store, capsys, *words):
    code = main.run_words([*words, "--store", str(store.root)])
    return code, capsys.readouterr().out.splitlines()


def test_runs_are_listed_with_dump_result_size_and_state(store, capsys):
    code, lines = run(store, capsys, "runs")
    assert (code, len(lines)) == (0, 2)
    assert {line[-19:] for line in lines} == {"10 steps are enough", "20 steps are enough"}
    for line in lines:
        for word in ("kettles", "complete", "report", "kB"):
            assert word in line


def test_living_runs_are_listed(store, capsys):
    with mark_run(store, "a", "kettles"):
        pass
    (store.root / "runs" / "a" / RUN_MARK).write_text("kettles")  # what a killed process leaves
    with mark_run(store, "b", "lamps"):
        _, lines = run(store, capsys, "runs")
        assert [line.split()[:2] for line in lines[2:]] == [["running", "lamps"]]


def test_a_stage_is_shown_with_its_lineage_first(store, capsys):
    [first, _] = list_runs(store)
    _, lines = run(store, capsys, "show", first.last["fingerprint"])
    assert str(store.root) in lines[0]
    assert [line.split()[0] for line in lines[1:5]] == ["report", "pretraining", "corpus", "dump"]
    assert any(line.startswith("result    answer ") for line in lines)


def test_pruning_lists_first_and_removes_what_nobody_needs(store, capsys):
    before = {p for p in store.root.rglob("*") if p.is_file()}
    [first, second] = list_runs(store)
    _, lines = run(store, capsys, "prune")
    assert [line.split()[-1].split("/")[0] for line in lines[:-1]] == ["finetuning"]
    assert "add --yes" in lines[-1]
    assert {p for p in store.root.rglob("*") if p.is_file()} == before, "a listing removes nothing"
    keep = first.last["fingerprint"][:8]
    run(store, capsys, "prune", "--keep", keep, "--yes")
    [left] = list_runs(store)
    assert left.last == first.last
    for manifest in left.lineage:
        kept = store.root / manifest["stage"] / manifest["fingerprint"]
        listed = json.loads((kept / "manifest.json").read_text())["files"]
        assert all((kept / file["path"]).exists() for file in listed)
    gone = [m["fingerprint"] for m in second.lineage if m not in left.lineage]
    assert len(gone) == 2
    assert not [path for name in gone for path in store.root.glob(f"*/{name}")]
    assert run(store, capsys, "prune", "--keep", "ffff")[0] == 2


def test_a_model_of_the_registry_outlives_a_run_that_is_not_kept(store, capsys, mlflow_template):
    [first, second] = list_runs(store)
    encoder = second.find_value("pretraining", "fingerprint")
    (store.root / "mlflow").mkdir()
    shutil.copy(mlflow_template, store.root / "mlflow" / "mlflow.db")
    tracking = Tracking(resolve_mlflow_database(store.root))
    tracking.start("a run", {}, {})
    tracking.log_folder(store.root / "pretraining" / encoder / "model", "model")
    assert tracking.wait_until_sent(200)
    registry = Registry(tracking.uri, name_model("polarity"))
    tags = {"encoder": encoder, "report": second.last["fingerprint"]}
    version = registry.add_version(tracking.parent.id, "model", tags)
    assert run(store, capsys, "promote", "9")[0] == 2
    registry.promote(version, "a test")
    tracking.finish()

    prune = "prune", "--keep", first.last["fingerprint"], "--yes"
    run(store, capsys, *prune)
    assert [one.last for one in list_runs(store)] == [first.last, second.last]
    MlflowClient(registry.uri).delete_model_version(registry.name, version)
    run(store, capsys, *prune)
    assert [one.last for one in list_runs(store)] == [first.last]


def test_while_a_run_is_under_way_nothing_goes(store, capsys):
    unfinished = store.root / "finetuning" / "0123456789abcdef"
    with mark_run(store, "b", "lamps"):
        assert run(store, capsys, "prune", "--yes")[0] == 2
        assert unfinished.is_dir()
    run(store, capsys, "prune", "--yes")
    assert not unfinished.exists()
