"""Dumps that arrive: an event by HTTP has the watcher look, which starts one run."""

import os
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from prefect.client.schemas.actions import DeploymentUpdate

from amazon_electra.flows.servers.access import read_password
from amazon_electra.flows.servers.settings import DUMP_EVENT
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.watch import Watch
from tests.beam_jobs.dumps import review, text_of, write_lines
from tests.patience import PATIENCE_SECONDS, eventually
from tests.served import serve

pytestmark = pytest.mark.timeout(3600)

SHAPE = {"batch": "4", "layers": "1", "hidden": "32", "intermediate": "64", "embedding": "32"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("arrivals") / "store") as up:
        yield up


def post_event(served):
    """As a storage notification would by `curl`."""
    event = {
        "id": str(uuid.uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": DUMP_EVENT,
        "resource": {"prefect.resource.id": "reviews.inbox"},
    }
    auth = tuple(read_password(served.store).split(":"))
    events = f"{served.prefect}/api/events"
    answer = httpx.post(events, json=[event], auth=auth, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 204


def runs_of(served, flow):
    with served.client() as client:
        flows = {found.id: found.name for found in client.read_flows()}
        return [run for run in client.read_flow_runs(limit=200) if flows.get(run.flow_id) == flow]


def started_by_an_event(served):
    """The looks of the watcher that no schedule began."""
    return {str(run.id) for run in runs_of(served, "watch-dumps") if not run.auto_scheduled}


def test_an_event_has_the_watcher_start_one_run_of_all_files(served):
    small = {"tasks": ["polarity"], "seeds": [0], "learning_rates": [0.001]}
    chosen = {
        "recipe": "sample",
        "pretraining": {"steps": 5, "settings": SHAPE},
        "finetuning": {**small, "arms": ["pre-trained"]},
        "promotion": {"mode": "off"},
    }
    with served.client() as client:
        training = client.read_deployment_by_name("domain-adaptation/domain-adaptation")
        changed = DeploymentUpdate(parameters={**training.parameters, **chosen})
        client.update_deployment(training.id, changed)
    for number, name in enumerate(("b", "a")):  # both have been there for long, b for longer
        texts = range(5000 + 100 * number, 5100 + 100 * number)
        path = served.store / "inbox" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        write_lines(path, [review(i, text_of(i)) for i in texts])
        os.utime(path, (time.time() - (3 - number) * Watch().settle_seconds,) * 2)
    post_event(served)
    looks = eventually(lambda: started_by_an_event(served))
    [run] = eventually(
        lambda: runs_of(served, "domain-adaptation"), lambda: served.told(min(looks))
    )
    served.wait(str(run.id), "Completed")
    [corpus] = [m for m in Store(served.store).list_manifests() if m["stage"] == "corpus"]
    assert {Path(name).name for name in corpus["result"]["files"]} == {"a.json", "b.json"}
    post_event(served)
    again = eventually(lambda: started_by_an_event(served) - looks)
    served.wait(again.pop(), "Completed")
    assert len(runs_of(served, "domain-adaptation")) == 1
