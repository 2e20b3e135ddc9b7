"""A run that the store has finished is shown again without Prefect or MLflow."""

import subprocess
import sys

import pytest

from amazon_electra.flows import domain_adaptation
from amazon_electra.flows.cli import running
from amazon_electra.flows.plan import plan_run
from amazon_electra.flows.store.stage import Group
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import has_finished_run, save_registered
from tests.flows.fakes import FakeStage
from tests.flows.forms import fill_parameters


def graph(plan):
    yield Group.of(plan.dump)
    yield Group.of(FakeStage("report", 1, {}, {"dump": plan.dump}))


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """The form of a run that has ended, and its store."""
    monkeypatch.setattr(domain_adaptation, "graph", graph)
    form = fill_parameters([], dump={"paths": ["sample:30"]}, store=str(tmp_path / "store"))
    store = Store(form.store)
    dump, report = (group.stages[0] for group in graph(plan_run(form, store)))
    for stage in (dump, report):
        store.folder(stage).mkdir(parents=True)
        store.publish(stage, dict(stage.result))
    became = "version 1 became champion"
    save_registered(store, report, dump, form.promotion.model_dump(), became)
    return form, store, report


def test_a_finished_run_is_shown_again_from_the_store_alone(finished, capsys):
    form, store, report = finished
    assert has_finished_run(store, report.inputs["dump"])
    made = running.find_finished(form, plan_run(form, store))
    assert made["folder"] == str(store.folder(report))
    assert made["registered"] == "version 1 became champion"
    assert "nothing to do" in capsys.readouterr().out


def promote_otherwise(form, store, report):
    return form.replace(promotion=form.promotion.replace(mode="off"))


def lose_a_stage(form, store, report):
    assert store.remove(report.inputs["dump"].path)
    return form


def change_the_dump(form, store, report):
    return form.replace(dump=form.dump.replace(paths=("sample:40",)))


@pytest.mark.parametrize("change", [promote_otherwise, lose_a_stage, change_the_dump])
def test_it_runs_where_something_has_changed(change, finished):
    now = change(*finished)
    assert running.find_finished(now, plan_run(now, finished[1])) == {}


RUN_CHANGED = """
import sys
from amazon_electra.flows.cli import running, terminal
from amazon_electra.flows.store.store import Store
from tests.flows.forms import fill_parameters

def run(*given):
    sys.exit(3 + ("prefect" in sys.modules))

terminal.run_in_terminal = run
form = fill_parameters([], dump={"paths": ["sample:30"]}, store=sys.argv[1])
running.execute_graph(form, Store(form.store))
"""


def test_prefect_is_not_imported_before_its_server_is_known(finished):
    """It keeps the settings with which it was imported: the run would be refused (401)."""
    _, store, _ = finished
    done = subprocess.run([sys.executable, "-c", RUN_CHANGED, str(store.root)])
    assert done.returncode == 3
