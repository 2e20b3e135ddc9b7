"""One run for each set of files, once, however many watchers look."""

import os
import threading

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter

from amazon_electra.flows.domain_adaptation import domain_adaptation
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.watch import NotStarted, Watch, look_for_dumps
from tests.flows.dumps.test_arrivals import LONG_AGO, dump


@pytest.fixture
def store(tmp_path, prefect_home):
    """A store on a server that has the deployment and nobody who works on it."""
    deploy()
    return Store(tmp_path / "store")


def deploy(**parameters):
    """Give the deployment these parameters of its own, as people do in the UI."""
    domain_adaptation.to_deployment(name=domain_adaptation.name, parameters=parameters).apply()


def runs(store):
    """The runs that were started for dumps of this store, in the order of their creation."""
    started = FlowRunFilter(tags={"all_": ["new-dump"]})
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_run_filter=started, limit=200)
    mine = [run for run in found if run.parameters["store"] == str(store.root)]
    return sorted(mine, key=lambda run: run.created)


def paths(found):
    return [[os.path.basename(path) for path in run.parameters["dump"]["paths"]] for run in found]


def test_two_watchers_start_one_run_of_all_files(store):
    for name in ("a", "b", "c"):
        dump(store.root / "inbox" / f"{name}.json")
    watchers = [threading.Thread(target=look_for_dumps, args=(store, Watch())) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join()
    assert paths(runs(store)) == [["a.json", "b.json", "c.json"]]
    assert look_for_dumps(store, Watch()) == []
    dump(store.root / "inbox" / "d.json")
    look_for_dumps(store, Watch())
    assert paths(runs(store))[1:] == [["a.json", "b.json", "c.json", "d.json"]]


def test_a_place_that_is_away_keeps_the_run_waiting(store, heard):
    dump(store.root / "inbox" / "a.json")
    with pytest.raises(NotStarted, match=r"watch.places='abfs://bucket/a'"):
        look_for_dumps(store, Watch(places=["abfs://bucket/a", "inbx/*", "inbox/*"]))
    assert f"{store.root}/inbx/*" in heard.text
    assert runs(store) == []


def test_a_run_has_the_settings_of_its_deployment(store):
    deploy(dump={"columns": "text=body"}, recipe="small", pretraining={"steps": 7})
    first = dump(store.root / "inbox" / "a.json", changed=LONG_AGO)
    look_for_dumps(store, Watch())
    [run] = runs(store)
    assert run.parameters == {
        "dump": {"columns": "text=body", "paths": [first]},
        "recipe": "small",
        "pretraining": {"steps": 7},
        "store": str(store.root),
    }
