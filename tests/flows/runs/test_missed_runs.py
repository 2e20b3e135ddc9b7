"""A schedule that nobody served catches up with one run."""

import datetime

import pytest

from amazon_electra.flows.runs.missed_runs import cancel_missed_runs, catch_up_once
from amazon_electra.flows.servers.settings import TAG


@pytest.fixture
def schedule_runs(prefect_home):
    """Makes a deployment whose schedules have runs every minute since so many minutes; returns its
    id.
    """
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import IntervalSchedule

    @flow
    def scheduled(): ...

    def schedule(name, minutes, schedules=1, tags=(TAG,)):
        now = datetime.datetime.now(datetime.UTC)
        times = [
            DeploymentScheduleCreate(
                schedule=IntervalSchedule(
                    interval=datetime.timedelta(minutes=1),
                    anchor_date=now - datetime.timedelta(days=1, seconds=30 - i),
                )
            )
            for i in range(schedules)
        ]
        with get_client(sync_client=True) as client:
            flow_id = client.create_flow(scheduled)
            made = client.create_deployment(
                flow_id=flow_id, name=name, schedules=times, tags=list(tags)
            )
            start = now - datetime.timedelta(minutes=minutes)
            about = {"start_time": start.isoformat(), "end_time": now.isoformat()}
            more = {"min_runs": 1, "max_runs": 100, "min_time": 86_400}
            path = "/deployments/{id}/schedule"
            answer = client.request("POST", path, path_params={"id": made}, json=about | more)
            answer.raise_for_status()
        return made

    return schedule


def read_runs(deployment):
    """Return (state, expected start) of all runs of a deployment that are due, in their order."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    wanted = FlowRunFilter.model_validate({"deployment_id": {"any_": [str(deployment)]}})
    now = datetime.datetime.now(datetime.UTC)
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=wanted, limit=200)
    due = [run for run in runs if run.expected_start_time <= now]
    return sorted((run.expected_start_time, run.state.name) for run in due)


def test_one_run_of_each_schedule_is_left(schedule_runs):
    from prefect.client.orchestration import get_client

    away, twice = schedule_runs("away", 7), schedule_runs("twice", 5, schedules=2)
    other = schedule_runs("other", 5, tags=["other"])
    with get_client(sync_client=True) as client:
        asked = client.create_flow_run_from_deployment(away).id
    before = len(read_runs(other))
    assert (len(read_runs(away)), before) == (8, 5)
    missed = cancel_missed_runs()
    assert len(missed) == 6 + 8
    states = [state for _, state in read_runs(away)]
    assert states == ["Cancelled"] * 6 + ["Scheduled"] * 2, "the latest, and what was asked for"
    assert asked not in missed
    assert [state for _, state in read_runs(twice)].count("Scheduled") == 2
    assert [state for _, state in read_runs(other)] == ["Scheduled"] * before
    assert cancel_missed_runs() == []


def test_a_worker_that_starts_all_that_is_due_works_once(schedule_runs):
    """As a worker of a pool does: every run that is due is started."""
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.flow_engine import run_flow

    worked = []

    @flow
    @catch_up_once
    def scheduled():
        worked.append(True)

    deployment = schedule_runs("pool", 4)
    with get_client(sync_client=True) as client:
        asked = client.create_flow_run_from_deployment(deployment)
        wanted = FlowRunFilter.model_validate({"deployment_id": {"any_": [str(deployment)]}})
        now = datetime.datetime.now(datetime.UTC)
        due = [
            run
            for run in client.read_flow_runs(flow_run_filter=wanted, limit=200)
            if run.expected_start_time <= now
        ]
        assert len(due) == 5
        for run in due:
            run_flow(scheduled, flow_run=run, return_type="state")
        ended = {run.id: client.read_flow_run(run.id).state.name for run in due}
    assert sorted(ended.values()) == ["Cancelled"] * 3 + ["Completed"] * 2
    assert ended[asked.id] == "Completed"
    assert len(worked) == 2
