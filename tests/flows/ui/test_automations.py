"""The automations are about our runs, by their tag, and nobody else's on the same server."""

from pathlib import Path

import pytest

from amazon_electra.flows.cli import terminal
from amazon_electra.flows.configuration.form import fill_parameters
from amazon_electra.flows.servers import health
from amazon_electra.flows.servers.settings import TAG
from amazon_electra.flows.ui import automations
from tests.patience import eventually


@pytest.fixture(scope="module")
def events(prefect_home):
    """What Prefect told of a run of ours and of somebody else's: [(event, whose)], heartbeats
    included.
    """
    from prefect import flow, tags

    @flow(name="somebody's")
    def trivial():
        from prefect.runtime import flow_run

        eventually(lambda: "heartbeat" in signs_of(read_events(flow_run.id)))
        return flow_run.id

    with tags(TAG):
        ours = trivial()
    told = []
    for run, whose in ((ours, "ours"), (trivial(), "somebody's")):
        eventually(lambda run=run: "Completed" in signs_of(read_events(run)))
        told += [(event, whose) for event in read_events(run)]
    return told


def read_events(run):
    """What the server knows of a flow run."""
    from prefect.client.orchestration import get_client

    wanted = {"event": {"prefix": ["prefect.flow-run."]}}
    wanted["resource"] = {"id": [f"prefect.flow-run.{run}"]}
    with get_client(sync_client=True) as client:
        return client._client.post("/events/filter", json={"filter": wanted}).json()["events"]


def signs_of(events):
    return {event["event"].rsplit(".")[-1] for event in events}


@pytest.mark.parametrize(
    ("automation", "covered"),
    [
        ("lost runs are crashed", {"ours"}),
        ("failures are told", {"ours"}),
    ],
)
def test_an_automation_is_about_our_runs_alone(events, automation, covered):
    from prefect.server.events.schemas.automations import EventTrigger
    from prefect.server.events.schemas.events import ReceivedEvent

    [built] = [one for one in automations.build_automations() if one.name == automation]
    trigger = EventTrigger.model_validate(built.trigger.model_dump())
    for sent, whose in events:
        event = ReceivedEvent.model_validate(sent)
        assert trigger.covers_resources(event.resource, event.related) is (whose in covered)


def test_a_run_started_in_a_terminal_is_one_of_ours(prefect_home, monkeypatch):
    from prefect.context import TagsContext

    monkeypatch.setattr(health, "interrupt_on_signals", lambda *signals: None)
    form = fill_parameters(dump={"paths": ["sample:100"]}, store=str(prefect_home))
    seen = terminal.run_in_terminal(
        Path(form.store), lambda: {"tags": TagsContext.get().current_tags}
    )
    assert TAG in seen["tags"]
