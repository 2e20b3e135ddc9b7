"""A run that the store has finished is shown again without Prefect or MLflow, as long as nothing
has changed since.
"""

import os
import subprocess
import sys

import pytest

from amazon_electra.flows import domain_adaptation
from amazon_electra.flows.cli import run_commands
from amazon_electra.flows.configuration.form import fill_parameters
from amazon_electra.flows.plan import plan_run
from amazon_electra.flows.runs.finished import read_finished, save_finished
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store.group import Group
from amazon_electra.flows.store.store import Store


def graph(plan):
    yield Group.of(plan.dump)


def dump_of(form, store):
    return build_dump_stage(form.dump, store)


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """Return the form of a run that has ended, and its store."""
    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "MLFLOW_BACKEND_STORE_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(domain_adaptation, "graph", graph)
    form = fill_parameters([], dump={"paths": ["sample:30"]}, store=str(tmp_path / "store"))
    store = Store(form.store)
    report = dump_of(form, store)
    store.publish(report, dict(report.result))
    (store.root / "mlflow").mkdir()
    (store.root / "mlflow" / "mlflow.db").write_text("runs")
    (store.root / "runs").mkdir()
    save_finished(store, report, form.promotion, "version 1 is champion")
    return form, store


def test_a_finished_run_is_shown_again_from_the_store_alone(finished, capsys):
    form, store = finished
    made = run_commands.show_finished(form, plan_run(form, store))
    assert made["folder"] == str(store.root / dump_of(form, store).path)
    assert made["registered"] == "version 1 is champion"
    assert "dump" in capsys.readouterr().err


def write_to_mlflow(form, store, monkeypatch):
    file = store.root / "mlflow" / "mlflow.db"
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))


def name_prefect(form, store, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")


def name_mlflow(form, store, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")


def promote_otherwise(form, store, monkeypatch):
    return form.replace(promotion=form.promotion.replace(mode="off"))


def lose_a_stage(form, store, monkeypatch):
    assert store.place.remove(dump_of(form, store).path)


def change_the_dump(form, store, monkeypatch):
    return form.replace(dump=form.dump.replace(paths=("sample:40",)))


@pytest.mark.parametrize(
    "change",
    [
        write_to_mlflow,
        name_prefect,
        name_mlflow,
        promote_otherwise,
        lose_a_stage,
        change_the_dump,
    ],
)
def test_it_runs_where_something_has_changed(change, finished, monkeypatch):
    form, store = finished
    assert read_finished(store, form.promotion)
    now = change(form, store, monkeypatch) or form
    assert run_commands.show_finished(now, plan_run(now, store)) == {}


RUN_CHANGED = """
import sys
from amazon_electra.flows.cli import run_commands, terminal
from amazon_electra.flows.configuration.form import fill_parameters

def run(*given):
    sys.exit(3 + ("prefect" in sys.modules))

terminal.run_in_terminal = run
form = fill_parameters([], dump={"paths": ["sample:40"]}, store=sys.argv[1])
run_commands.execute_graph(form)
"""


def test_prefect_is_not_imported_before_its_server_is_known(finished):
    """It keeps the settings with which it was imported: the run would be refused (401)."""
    _, store = finished
    done = subprocess.run([sys.executable, "-c", RUN_CHANGED, str(store.root)])
    assert done.returncode == 3
