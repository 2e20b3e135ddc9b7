"""The deployments of flows/ui/deployments.yaml, served here and for pools; the automation is about
our runs, by their tag, and nobody else's on the same server.
"""

import logging
from pathlib import Path
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate
from prefect.client.schemas.schedules import CronSchedule

from amazon_electra.flows.cli import terminal
from amazon_electra.flows.runner import processes
from amazon_electra.flows.servers.access import CLIENT, TAG
from amazon_electra.flows.ui import deployments
from tests.flows.forms import fill_parameters

SHIPPED, OWN = "*/15 * * * *", "0 3 * * *"
"""When the watcher looks."""


@pytest.fixture
def client(prefect_home):
    """Of a server that knows none of the deployments."""
    with get_client(sync_client=True) as client:
        for known in client.read_deployments():
            client.delete_deployment(known.id)
        yield client


def test_every_deployment_has_a_flow_whose_form_works_as_it_is(client):
    for told in deployments.build_deployments("/data/store", in_pools=True):
        flow = deployments.import_object(told.entrypoint)
        assert flow.parameters.required == [], told.name
        flow.validate_parameters(told.parameters)
        for name, field in flow.parameters.properties.items():
            assert "default" in field, (told.name, name)  # a closed section has none
            described = field.get("description") or "$ref" in str(field)
            assert described or name in ("store", "recipe"), (told.name, name)


def test_pools_have_the_deployments_and_keep_their_settings(client):
    for store in ("/data/store", "s3://bucket/store"):
        deployments.deploy(store)
        taken = {d.name: d for d in client.read_deployments()}
        automations = {automation.name: automation for automation in client.read_automations()}
        [action] = automations["watch-dumps on reviews.dump.arrived"].actions
        assert action.deployment_id == taken["watch-dumps"].id
        assert "lost runs are crashed" in automations
        assert taken["watch-dumps"].concurrency_options.collision_strategy == "CANCEL_NEW"
        assert taken["domain-adaptation"].parameters["engine"] == {"prepare": True}
        for one in taken.values():
            assert one.work_pool_name in ("cpu", "accelerator")
            assert one.parameters["store"] == store
            assert one.job_variables == {"env": CLIENT}
        client.update_work_pool("cpu", WorkPoolUpdate(concurrency_limit=5))
    assert client.read_work_pool("cpu").concurrency_limit == 5


def test_what_people_changed_in_the_ui_outlives_the_serving_process(client, tmp_path, caplog):
    def serve():
        served = deployments.build_deployments(str(tmp_path))
        [known] = [one.apply() for one in served if one.name == "watch-dumps"]
        return known, client.read_deployment(known)

    known, told = serve()
    [shipped] = told.schedules
    assert shipped.schedule.cron == SHIPPED
    places = ["s3://bucket/reviews"]
    client.update_deployment_schedule(known, shipped.id, active=False)
    client.create_deployment_schedules(known, [(CronSchedule(cron=OWN), True)])
    edited = DeploymentUpdate(parameters={"places": places, "store": "/elsewhere"}, paused=True)
    client.update_deployment(known, edited)
    assert serve()[0] == known
    now = client.read_deployment(known)
    assert now.parameters == {"places": places, "store": str(tmp_path)}
    assert now.paused
    assert {s.schedule.cron: s.active for s in now.schedules} == {SHIPPED: False, OWN: True}

    caplog.set_level(logging.WARNING, logger="amazon_electra")  # Beam quietens the root logger
    old = DeploymentUpdate(
        parameters={"places": [], "recipe": "small"}, enforce_parameter_schema=False
    )
    client.update_deployment(known, old)
    assert serve()[1].parameters == {"store": str(tmp_path)}, "the form no longer takes these"
    assert "watch-dumps" in caplog.text


@pytest.mark.parametrize("store", ["", "store"])
def test_a_store_that_workers_cannot_see_is_refused(store):
    with pytest.raises(SystemExit) as refused:
        deployments.deploy(store)
    assert "the store" in str(refused.value)


def test_the_automation_is_about_our_runs_alone():
    from prefect.server.events.schemas.automations import EventTrigger
    from prefect.server.events.schemas.events import RelatedResource, Resource

    trigger = EventTrigger.model_validate(deployments.build_automation().trigger.model_dump())
    run = Resource({"prefect.resource.id": f"prefect.flow-run.{uuid4()}"})
    for tag, is_ours in ((TAG, True), ("somebody's", False)):
        about = {"prefect.resource.id": f"prefect.tag.{tag}", "prefect.resource.role": "tag"}
        assert trigger.covers_resources(run, [RelatedResource(about)]) is is_ours
    assert not trigger.covers_resources(run, [])


def test_a_run_started_in_a_terminal_is_one_of_ours(prefect_home, monkeypatch):
    from prefect.context import TagsContext

    monkeypatch.setattr(processes, "interrupt_on_signals", lambda *signals: None)
    form = fill_parameters(dump={"paths": ["sample:100"]}, store=str(prefect_home))
    seen = terminal.run_in_terminal(
        Path(form.store), lambda: {"tags": TagsContext.get().current_tags}
    )
    assert TAG in seen["tags"]
