"""The automations are about our runs, by their tag, and nobody else's on the same server."""

import time

import pytest

from flows.configuration.settings import fill_parameters
from flows.servers import health, prefect_server, settings
from flows.servers.settings import TAG
from flows.ui import automations, terminal


@pytest.fixture(scope="module")
def events(prefect_home):
    """What Prefect told of a run of ours and of somebody else's: [(event, ours)], heartbeats
    included.
    """
    from prefect import flow, tags
    from prefect.client.orchestration import get_client

    @flow(name="somebody's")
    def trivial():
        from prefect.runtime import flow_run

        time.sleep(0.2)
        return flow_run.id

    with tags(TAG):
        ours = trivial()
    runs = {f"prefect.flow-run.{ours}": True, f"prefect.flow-run.{trivial()}": False}
    prefect_server.flush_prefect()
    wanted = {"event": {"prefix": ["prefect.flow-run."]}, "resource": {"id": list(runs)}}
    deadline = time.monotonic() + 120
    with get_client(sync_client=True) as client:
        while True:
            found = client._client.post("/events/filter", json={"filter": wanted}).json()["events"]
            told = [(event, runs[event["resource"]["prefect.resource.id"]]) for event in found]
            signs = {(event["event"].rsplit(".")[-1], who) for event, who in told}
            if signs >= {
                (sign, who) for sign in ("heartbeat", "Completed") for who in (True, False)
            }:
                return told
            assert time.monotonic() < deadline, signs
            time.sleep(0.2)


@pytest.mark.parametrize(
    "automation", [automations.build_lost_runs_automation(), automations.build_failure_automation()]
)
def test_an_automation_is_about_our_runs_alone(events, automation):
    from prefect.server.events.schemas.automations import EventTrigger
    from prefect.server.events.schemas.events import ReceivedEvent

    trigger = EventTrigger.model_validate(automation.trigger.model_dump())
    for sent, ours in events:
        event = ReceivedEvent.model_validate(sent)
        assert trigger.covers_resources(event.resource, event.related) is ours, sent["event"]


def test_every_process_of_a_run_gives_signs_of_life_often_enough():
    assert settings.LOST_SECONDS >= 3 * settings.HEARTBEAT_SECONDS
    assert settings.CLIENT["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == str(settings.HEARTBEAT_SECONDS)


def test_a_run_started_in_a_terminal_is_one_of_ours(prefect_home, monkeypatch):
    from prefect.context import TagsContext

    monkeypatch.setattr(health, "interrupt_on_signals", lambda *signals: None)
    form = fill_parameters(dump={"paths": ["sample:100"]}, store=str(prefect_home))
    seen = terminal.run_in_terminal(form, lambda: {"tags": TagsContext.get().current_tags})
    assert TAG in seen["tags"]
