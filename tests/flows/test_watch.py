"""One run for each set of files, once, however many watchers look."""

import os
import threading

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter

from amazon_electra.flows.domain_adaptation import domain_adaptation
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.watch import find_whole_dumps, watch_dumps
from tests.flows.test_arrivals import dump
from tests.refusals import refuses


def test_a_file_is_whole_once_two_looks_see_the_same(tmp_path):
    store = Store(tmp_path / "store")
    first = dump(store.root / "inbox" / "a.json")
    assert find_whole_dumps(store) == []
    dump(store.root / "inbox" / "b.json")
    assert [path for path, *_ in find_whole_dumps(store)] == [first]
    dump(store.root / "inbox" / "b.json", text="{more}")
    assert [path for path, *_ in find_whole_dumps(store)] == [first]
    assert len(find_whole_dumps(store)) == 2


@pytest.fixture
def store(tmp_path, prefect_home):
    """A store on a server that has the deployment, with settings of people, and nobody who works
    on it.
    """
    own = {"dump": {"columns": "text=body"}, "recipe": "small", "pretraining": {"steps": 7}}
    domain_adaptation.to_deployment(name=domain_adaptation.name, parameters=own).apply()
    return Store(tmp_path / "store")


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
    watch_dumps.fn(store=store.address)
    watchers = [
        threading.Thread(target=watch_dumps.fn, kwargs={"store": store.address}) for _ in range(2)
    ]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join()
    [run] = runs(store)
    assert paths([run]) == [["a.json", "b.json", "c.json"]]
    assert (run.parameters["recipe"], run.parameters["pretraining"]) == ("small", {"steps": 7})
    assert run.parameters["dump"]["columns"] == "text=body"
    dump(store.root / "inbox" / "d.json")
    for _ in range(2):
        watch_dumps.fn(store=store.address)
    assert paths(runs(store))[1:] == [["a.json", "b.json", "c.json", "d.json"]]


def test_a_place_that_is_away_keeps_the_run_waiting(store):
    dump(store.root / "inbox" / "a.json")
    watch_dumps.fn(store=store.address)
    with refuses("abfs://bucket/a"):
        watch_dumps.fn(["abfs://bucket/a", "inbox/*"], store.address)
    assert runs(store) == []
