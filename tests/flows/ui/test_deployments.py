"""deploy/ says what flows/ui/deployments.py says, and Prefect takes it."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.schedules import CronSchedule

from beam_jobs.core.errors import UserError
from flows.servers.settings import CLIENT
from flows.ui import deployments

SET_FOLDER = "prefect.deployments.steps.set_working_directory"
ANNOUNCED = {"announced": {"__prefect_kind": "jinja", "template": "{{ event.payload.dump or '' }}"}}
ROOT = Path(__file__).parents[3]


def test_prefect_yaml_and_the_served_deployments_cannot_drift():
    assert (ROOT / "deploy" / "prefect.yaml").read_text() == deployments.format_prefect_yaml()


def test_every_deployment_has_a_flow_whose_form_works_as_it_is():
    from prefect.utilities.importtools import import_object

    for spec in deployments.DEPLOYMENTS:
        flow = import_object(spec.entrypoint)
        assert spec.name in (flow.name, f"{flow.name}-{spec.pool}")
        schema = flow.parameters
        assert schema.required == [], spec.name
        flow.validate_parameters(spec.parameters)
        for name, field in schema.properties.items():
            assert field.get("default") is not None, (spec.name, name)
        described = [
            name
            for name, field in schema.properties.items()
            if field.get("description") or "$ref" in str(field)
        ]
        assert set(described) >= set(schema.properties) - {"store", "recipe"}, spec.name


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
    assert (action.deployment_id, action.parameters) == (taken["watch-dumps"].id, ANNOUNCED)
    [again] = automations["watch-dumps after add-dump"].actions
    assert again.deployment_id == taken["watch-dumps"].id
    for spec in deployments.DEPLOYMENTS:
        assert taken[spec.name].work_pool_name == spec.pool
        placed = {"engine": {"placement": "pools"}} if spec.pool == "flows" else {}
        given = {**spec.parameters, **placed, "store": "/data/store"}
        assert taken[spec.name].parameters == given
        is_part = spec.name.startswith("run-stage-")
        command = {"command": "python -m prefect.engine"} if is_part else {}
        assert taken[spec.name].job_variables == {**command, "env": CLIENT}
        assert taken[spec.name].pull_steps == [{SET_FOLDER: {"directory": "/"}}], (
            "one that every worker has"
        )
        assert [s.schedule.cron for s in taken[spec.name].schedules] == (
            [spec.cron] if spec.cron else []
        )


@pytest.fixture
def watcher(prefect_home, tmp_path):
    """The deployment as a serving process leaves it at the server: its client, and how to serve it
    again.
    """
    from prefect.client.orchestration import get_client

    def again():
        [served] = [
            one for one in deployments.build_deployments(tmp_path) if one.name == "watch-dumps"
        ]
        return served.apply()

    with get_client(sync_client=True) as client:
        if before := deployments.read_deployment(
            client, next(o for o in deployments.DEPLOYMENTS if o.name == "watch-dumps")
        ):
            client.delete_deployment(before.id)
        known = again()
        yield client, known, again
        client.delete_deployment(known)


def test_what_people_changed_in_the_ui_outlives_the_serving_process(watcher, tmp_path):
    client, known, again = watcher
    [shipped] = client.read_deployment(known).schedules
    assert shipped.schedule.cron == "*/15 * * * *"
    watch = {"places": ["s3://bucket/reviews"], "each": "added"}
    client.update_deployment_schedule(known, shipped.id, active=False)
    client.create_deployment_schedules(known, [(CronSchedule(cron="0 3 * * *"), True)])
    client.update_deployment(
        known, DeploymentUpdate(parameters={"watch": watch, "store": "/elsewhere"}, paused=True)
    )
    assert again() == known
    now = client.read_deployment(known)
    assert now.parameters == {"watch": watch, "store": str(tmp_path)}
    assert now.paused
    assert {(s.schedule.cron, s.active) for s in now.schedules} == {
        ("*/15 * * * *", False),
        ("0 3 * * *", True),
    }


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


def test_a_store_that_nobody_named_is_refused_before_anything_is_said_to_prefect():
    environment = {**os.environ, "AMAZON_ELECTRA_STORE": "", "PATH": ""}
    command = ["/bin/sh", str(ROOT / "deploy" / "deployments.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert (
        "AMAZON_ELECTRA_STORE: set it to the folder of the store as the workers see it"
        in done.stderr
    )
    described = deployments.build_prefect_file()
    assert described["build"] == [
        {"flows.ui.deployments.check_store": {"store": "{{ $AMAZON_ELECTRA_STORE }}"}}
    ]
    for store in ("", "store"):
        with pytest.raises(
            UserError, match=f"^AMAZON_ELECTRA_STORE is '{store}': set it to the store's folder"
        ):
            deployments.check_store(store)
