"""The deployments of flows/ui/prefect.yaml, served here and for pools."""

import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound

from amazon_electra.flows.servers.settings import CLIENT
from amazon_electra.flows.ui import deployments

SET_FOLDER = "prefect.deployments.steps.set_working_directory"
ROOT = Path(__file__).parents[3]


def test_every_deployment_has_a_flow_whose_form_works_as_it_is():
    from prefect.utilities.importtools import import_object

    for told in deployments.read_file()["deployments"]:
        flow = import_object(told["entrypoint"])
        assert told["name"] == flow.name
        schema = flow.parameters
        assert schema.required == [], told["name"]
        flow.validate_parameters(told["parameters"])
        for name, field in schema.properties.items():
            assert "default" in field, (told["name"], name)  # a closed section has none
            described = field.get("description") or "$ref" in str(field)
            assert described or name in ("store", "recipe"), (told["name"], name)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_home")
def test_prefect_takes_the_file_for_work_pools():
    from prefect.client.orchestration import get_client

    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "AMAZON_ELECTRA_STORE": "/data/store"}
    command = ["sh", str(ROOT / "deploy" / "deployments.sh")]
    subprocess.run(command, check=True, env=environment)
    with get_client(sync_client=True) as client:
        automations = {automation.name: automation for automation in client.read_automations()}
        assert automations.keys() >= {"lost runs are crashed", "failures are told"}
        taken = {d.name: d for d in client.read_deployments()}
    [action] = automations["watch-dumps on reviews.dump.arrived"].actions
    assert action.deployment_id == taken["watch-dumps"].id
    assert taken["watch-dumps"].concurrency_options.collision_strategy == "CANCEL_NEW"
    for told in deployments.read_file()["deployments"]:
        name, pool = told["name"], told["work_pool"]
        assert taken[name].work_pool_name == pool["name"]
        assert taken[name].parameters == {**told["parameters"], "store": "/data/store"}
        assert taken[name].job_variables == {"env": CLIENT}
        assert taken[name].pull_steps == [{SET_FOLDER: {"directory": "/"}}]  # every worker has it
        assert len(taken[name].schedules) == len(told.get("schedules", []))

    watch = {"places": ["s3://bucket/reviews"]}
    secret = {"paths": ["{{ $AMAZON_ELECTRA_WEBHOOK }}"]}
    with get_client(sync_client=True) as client:
        edited = DeploymentUpdate(parameters={"watch": watch, "store": "/elsewhere"}, paused=True)
        client.update_deployment(taken["watch-dumps"].id, edited)
        client.update_deployment(taken["score"].id, DeploymentUpdate(parameters={"dump": secret}))
        pools = {"cpu": {"concurrency_limit": 5}, "accelerator": {"is_paused": True}}
        for pool, change in pools.items():
            client.update_work_pool(pool, WorkPoolUpdate(**change))
    subprocess.run(command, check=True, env=environment)
    with get_client(sync_client=True) as client:
        again = {d.name: d for d in client.read_deployments()}
        kept = {pool.name: pool for pool in client.read_work_pools()}
    assert again["watch-dumps"].parameters == {"watch": watch, "store": "/data/store"}
    assert [name for name, one in again.items() if one.paused] == ["watch-dumps"]
    assert "dump" not in again["score"].parameters, "no variable of this process is filled in"
    assert again["domain-adaptation"].parameters == taken["domain-adaptation"].parameters
    assert (kept["cpu"].concurrency_limit, kept["accelerator"].is_paused) == (5, True)


@pytest.fixture
def watcher(prefect_home, tmp_path):
    """The deployment as a serving process leaves it at the server: its client, and how to serve it
    again.
    """
    from prefect.client.orchestration import get_client

    def again():
        served = {one.name: one for one in deployments.build_deployments(tmp_path)}
        return served["watch-dumps"].apply()

    with get_client(sync_client=True) as client:
        with suppress(ObjectNotFound):
            client.delete_deployment(client.read_deployment_by_name("watch-dumps/watch-dumps").id)
        known = again()
        yield client, known, again
        client.delete_deployment(known)


def test_what_people_changed_in_the_ui_outlives_the_serving_process(watcher, tmp_path):
    client, known, again = watcher
    [shipped] = client.read_deployment(known).schedules
    assert shipped.schedule.cron == "*/15 * * * *"
    watch = {"places": ["s3://bucket/reviews"]}
    client.update_deployment_schedule(known, shipped.id, active=False)
    client.create_deployment_schedules(known, [(CronSchedule(cron="0 3 * * *"), True)])
    edited = DeploymentUpdate(parameters={"watch": watch, "store": "/elsewhere"}, paused=True)
    client.update_deployment(known, edited)
    assert again() == known
    now = client.read_deployment(known)
    assert now.parameters == {"watch": watch, "store": str(tmp_path)}
    assert now.paused
    looks = {s.schedule.cron: s.active for s in now.schedules}
    assert looks == {"*/15 * * * *": False, "0 3 * * *": True}


def test_what_the_form_no_longer_takes_is_not_kept(watcher, tmp_path, caplog):
    caplog.set_level(logging.WARNING, logger="amazon_electra")  # Beam quietens the root logger
    client, known, again = watcher
    old = DeploymentUpdate(
        parameters={"watch": {"folders": ["x"]}, "recipe": "small"}, enforce_parameter_schema=False
    )
    client.update_deployment(known, old)
    again()
    assert client.read_deployment(known).parameters == {"store": str(tmp_path)}
    assert "watch-dumps has its shipped defaults again" in caplog.text


@pytest.mark.parametrize("store", ["", "store"])
def test_a_store_that_nobody_named_is_refused_before_anything_is_said_to_prefect(store):
    environment = {**os.environ, "AMAZON_ELECTRA_STORE": store, "PATH": ""}
    command = ["/bin/sh", str(ROOT / "deploy" / "deployments.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert "the store" in done.stderr
    assert "as the workers see it" in done.stderr
