"""Lets a schedule catch up with one run, however many were missed.

Prefect keeps each run that a schedule has made: after an hour in which nothing served the
deployments, or one training took all places, all of them would start at once. Where `up` serves,
the missed ones are cancelled before they start (`watch_for_missed_runs`); on a worker of a pool,
which starts all that is due, each but the latest ends itself (`catch_up_once`).
"""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import DeploymentFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.states import Cancelled
from prefect.types import DateTime

from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.servers.settings import TAG

LOOK_SECONDS = 10.0
"""As often as Prefect's runner looks for runs that are due."""
AT_ONCE = 200
"""Prefect's server returns at most so many runs at a time."""
WAITING = ["Scheduled", "Late"]
"""Names of the states of a run that has not begun; one that is to be tried again has another."""
MISSED = "missed: a later run of its schedule is due"
F = TypeVar("F", bound=Callable[..., Any])


def cancel_missed_runs() -> list[UUID]:
    """Cancel the runs of a schedule that are due and have not begun, but for the latest one;
    return their ids. Runs that a person or an event has started stay.
    """
    latest = set[tuple[Any, Any]]()
    missed = list[UUID]()
    wanted = {
        "state": {"name": {"any_": WAITING}},
        "expected_start_time": {"before_": DateTime.now("UTC")},
    }
    with get_client(sync_client=True) as client:
        due: list[FlowRun] = []
        while not len(due) % AT_ONCE:
            found = client.read_flow_runs(
                flow_run_filter=FlowRunFilter.model_validate(wanted),
                deployment_filter=DeploymentFilter.model_validate({"tags": {"all_": [TAG]}}),
                sort=FlowRunSort.EXPECTED_START_TIME_DESC,
                limit=AT_ONCE,
                offset=len(due),
            )
            due += found
            if not found:
                break
        for run in due:
            schedule = identify_schedule(run)
            if not run.auto_scheduled or run.run_count:
                continue
            if schedule not in latest:
                latest.add(schedule)
                continue
            cancelled: Any = Cancelled(message=MISSED)
            client.set_flow_run_state(run.id, cancelled)
            missed.append(run.id)
    return missed


def watch_for_missed_runs() -> None:
    """Cancel missed runs now, and go on in a thread for as long as this process lives."""

    def look() -> None:
        try:
            if missed := cancel_missed_runs():
                print(f"{format_count(len(missed), 'run')} of schedules missed and cancelled")
        except Exception as away:  # the server: the next look tries again
            print(f"the runs of schedules could not be looked up: {away}")

    def look_again() -> None:
        while not over.wait(LOOK_SECONDS):
            look()

    over = threading.Event()
    look()
    threading.Thread(target=look_again, daemon=True).start()


def identify_schedule(run: FlowRun) -> tuple[Any, Any]:
    """Return what runs of one schedule share."""
    return run.deployment_id, run.created_by.id if run.created_by else None


def is_missed(run: FlowRun) -> bool:
    """Return whether a run of a schedule starts for the first time after a later one was due."""
    if not run.auto_scheduled or run.run_count > 1 or not run.expected_start_time:
        return False
    due = {"before_": DateTime.now("UTC"), "after_": run.expected_start_time}
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(
                {
                    "deployment_id": {"any_": [str(run.deployment_id)]},
                    "expected_start_time": due,
                }
            ),
            sort=FlowRunSort.EXPECTED_START_TIME_DESC,
            limit=AT_ONCE,
        )
    return any(
        later.id != run.id
        and later.auto_scheduled
        and (later.expected_start_time or run.expected_start_time) > run.expected_start_time
        and identify_schedule(later) == identify_schedule(run)
        and not (later.state and later.state.is_cancelled())
        for later in found
    )


def catch_up_once(work: F) -> F:
    """Have a flow end as cancelled where its run is missed; stands between `flow` and its form."""

    @functools.wraps(work)
    def run_unless_missed(**given: Any) -> Any:
        context = FlowRunContext.get()
        run = context and context.flow_run
        return Cancelled(message=MISSED) if run and is_missed(run) else work(**given)

    return run_unless_missed  # type: ignore[return-value]
