"""One run for each new dump, once, however many watchers look."""

import json
import os
import threading
import time

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.states import Completed, Failed

from amazon_electra.flows import add_dump
from amazon_electra.flows.configuration.form import Addition, Increment
from amazon_electra.flows.domain_adaptation import domain_adaptation
from amazon_electra.flows.runner.stage_runner import Plan
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.watch import NotStarted, Watch, look_for_dumps
from tests.beam_jobs.dumps import review
from tests.flows.dumps.test_arrivals import LONG_AGO, dump
from tests.flows.made import made_run, publish


@pytest.fixture
def store(tmp_path, prefect_home):
    """A store with a finished run, on a server that has both deployments and nobody who works on
    them.
    """
    deploy(add_dump.add_dump)
    deploy(domain_adaptation)
    return Store(tmp_path / "store")


def deploy(flow, **parameters):
    """Give a deployment these parameters of its own, as people do in the UI."""
    flow.to_deployment(name=flow.name, parameters=parameters).apply()


def runs(store):
    """The runs that were started for dumps of this store, in the order of their creation."""
    started = FlowRunFilter(tags={"all_": ["new-dump"]})
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(flow_run_filter=started, limit=200)
    mine = [run for run in found if run.parameters["store"] == str(store.root)]
    return sorted(mine, key=lambda run: run.created)


def paths(found):
    return [os.path.basename(run.parameters["dump"]["paths"][0]) for run in found]


def test_two_watchers_at_once_start_one_run_for_each(store):
    for name in ("a", "b", "c"):
        dump(store.root / "inbox" / f"{name}.json")
    watchers = [threading.Thread(target=look_for_dumps, args=(store, Watch())) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join()
    assert paths(runs(store)) == ["a.json", "b.json", "c.json"]
    assert look_for_dumps(store, Watch()) == []
    dump(store.root / "inbox" / "d.json")
    assert [os.path.basename(path) for path in look_for_dumps(store, Watch())] == ["d.json"]


def test_an_announced_dump_that_lies_in_the_store_starts_its_run_with_the_first_look(store, heard):
    dump(store.root / "inbox" / "a.json", changed=time.time())
    assert look_for_dumps(store, Watch(), announced="outbox/a.json") == []
    assert "announced, but not taken: outbox/a.json: no such file lies in one of" in heard.text
    look_for_dumps(store, Watch(), announced="inbox/a.json")
    assert paths(runs(store)) == ["a.json"]


def test_dumps_are_added_in_the_order_of_their_arrival_each_after_the_one_before(store):
    encoder = made_run(store.root)
    added = Watch(each="added")
    dump(store.root / "inbox" / "b.json", "{1}", LONG_AGO + 2)
    dump(store.root / "inbox" / "c.json", "{2}", LONG_AGO + 1)
    look_for_dumps(store, added)
    assert paths(runs(store)) == ["c.json"]
    dump(store.root / "inbox" / "a.json", "{3}", LONG_AGO)
    assert look_for_dumps(store, added) == [], "one is still to be made"
    for state in (Failed(), Completed()):
        end_runs(store, state)
        look_for_dumps(store, added)
        assert look_for_dumps(store, added) == []
    assert paths(runs(store)) == ["c.json", "a.json", "b.json"]
    bases = {run.parameters["increment"]["base"] for run in runs(store)}
    assert bases == {encoder}, "none of them has made a model"


def test_a_named_base_is_the_first_of_a_chain(store, tmp_path):
    encoder = made_run(store.root)
    deploy(add_dump.add_dump, increment={"base": encoder})
    dump(store.root / "inbox" / "a.json", "{1}")
    look_for_dumps(store, Watch(each="added"))
    [first] = runs(store)
    assert first.parameters["increment"]["base"] == encoder
    model = publish_addition(store, first)
    end_runs(store, Completed())
    made_run(store.root, "pretraining.seed=9")  # a newer model, of another chain
    dump(store.root / "inbox" / "b.json", "{2}", LONG_AGO + 1)
    look_for_dumps(store, Watch(each="added"))
    assert runs(store)[1].parameters["increment"]["base"] == model


def end_runs(store, state):
    with get_client(sync_client=True) as client:
        for run in runs(store):
            client.set_flow_run_state(run.id, state, force=True)


def publish_addition(store, run):
    """Publish what an addition makes, up to its model, and return that one's fingerprint."""
    plan = Plan(store)
    add_dump.graph(add_dump.prepare_addition(Addition(**run.parameters), plan), plan)
    for stage, _ in plan.stages:
        publish(store, stage)
        if stage.name == "pretraining":
            break
    return stage.fingerprint


def test_a_dump_whose_run_cannot_be_started_keeps_no_other_waiting(store):
    reviews = [json.dumps(review(i) | {"overall": 1 + i % 5}) for i in range(300)]
    first = dump(store.root / "inbox" / "a.json", "\n".join(reviews))
    dump(store.root / "inbox" / "b.json", "{1}")
    made_run(store.root, dump=first)
    with pytest.raises(NotStarted, match=r"a\.json"):
        look_for_dumps(store, Watch(each="added"))
    assert paths(runs(store)) == ["b.json"]


def test_a_look_tells_of_its_places_at_the_end(store, heard):
    dump(store.root / "inbox" / "a.json")
    with pytest.raises(NotStarted, match=r"watch.places='abfs://bucket/a'"):
        look_for_dumps(store, Watch(places=["abfs://bucket/a", "inbx/*", "inbox/*"]))
    assert f"{store.root}/inbx/*" in heard.text
    assert paths(runs(store)) == ["a.json"]


def test_without_a_model_to_add_to_nothing_is_started(store):
    dump(store.root / "inbox" / "a.json")
    with pytest.raises(NotStarted, match=r"increment\.base"):
        look_for_dumps(store, Watch(each="added"))
    assert runs(store) == []
    encoder = made_run(store.root)
    look_for_dumps(store, Watch(each="added"))
    [run] = runs(store)
    assert run.parameters["increment"]["base"] == encoder


def test_runs_are_started_with_the_settings_of_their_deployment(store):
    encoder = made_run(store.root)
    of_all = {"dump": {"columns": "text=body"}, "promotion": {"mode": "ask"}}
    deploy(domain_adaptation, **of_all, recipe="small", pretraining={"steps": 7})
    deploy(add_dump.add_dump, **of_all, increment={"steps": 9})
    first = dump(store.root / "inbox" / "a.json")
    look_for_dumps(store, Watch())
    second = dump(store.root / "inbox" / "b.json", changed=LONG_AGO + 1)
    look_for_dumps(store, Watch(each="added"))
    one, two = [run.parameters for run in runs(store)]
    common = {"promotion": {"mode": "ask"}, "store": str(store.root)}
    assert one == {
        **common,
        "dump": {"columns": "text=body", "paths": [first]},
        "recipe": "small",
        "pretraining": {"steps": 7},
    }
    assert two.pop("increment") == Increment(base=encoder, steps=9).model_dump(mode="json")
    assert two == {**common, "dump": {"columns": "text=body", "paths": [second]}}
