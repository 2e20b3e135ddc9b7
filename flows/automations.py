"""What Prefect does by itself: one training at a time, lost runs noticed, failures told.

Created by `up`; elsewhere by `python -m flows.automations`.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect.automations import Automation, EventTrigger
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State, StateType
from prefect.events.actions import CallWebhook, ChangeFlowRunState, DoNothing
from prefect.events.schemas.automations import Posture
from prefect.states import Cancelled, Crashed
from pydantic import SecretStr

from flows import failures as failures_log
from flows.deployments import ACCELERATOR, TAG
from flows.servers import HEARTBEAT_SECONDS

LOST_SECONDS = 4 * HEARTBEAT_SECONDS
"""A run that has given no sign for so long is crashed: three heartbeats and a margin."""
LOST_RUNS = "lost runs are crashed"
"""Name of the automation; the server knows it by that when it has been away."""
OURS: dict[str, str | list[str]] = {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}
"""Heartbeats and changes of state name the run's tags; other people's runs on the same server are not our concern."""
WEBHOOK = "AMAZON_ELECTRA_WEBHOOK"
"""Environment variable with the address that is called when a run fails; maybe a secret, so it is never logged."""
ENDED = tuple(
    f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Crashed", "Cancelled", "Paused", "Suspended")
)
"""Events after which no sign of life is expected: named after the state, not after its type."""


def ensure(trainings_at_once: int = 1) -> None:
    """Creates or renews all of it; nothing is doubled by a second start."""
    with get_client(sync_client=True) as client:
        client.create_concurrency_limit(tag=ACCELERATOR, concurrency_limit=trainings_at_once)
        known = {automation.name: automation for automation in client.read_automations()}
    for wanted in (lost_runs(), failures()):
        if wanted.name in known:
            wanted.id = known[wanted.name].id
            wanted.update()
        else:
            wanted.create()


def settle(deployments: Sequence[UUID]) -> None:
    """Says of the runs of a serving process that was killed what became of them: their processes ended with it.

    For whoever serves these deployments next, and is the only one who does. `lost_runs` would take minutes, and its
    clocks begin anew when it is renewed.
    """
    unfinished = {"any_": [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]}
    left = FlowRunFilter.model_validate({"deployment_id": {"any_": list(deployments)}, "state": {"type": unfinished}})
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=left, limit=200):
            cancelling = run.state is not None and run.state.is_cancelling()
            crashed: State[None] = Crashed(message="its process was killed; start it again")
            state: State[None] = Cancelled() if cancelling else crashed
            client.set_flow_run_state(run.id, state)
            if not cancelling:
                failures_log.note(None, run, state)


def lost_runs() -> Automation:
    """A run whose process was killed with its machine cannot say so itself."""
    return Automation(
        name=LOST_RUNS,
        description=f"A run without a sign of life for {LOST_SECONDS} s; start it again, it continues where it was.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.heartbeat", *ENDED},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=OURS,
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=LOST_SECONDS),
        ),
        actions=[
            ChangeFlowRunState(
                name=None, state=StateType.CRASHED, message="no sign of life; start it again", force=False
            )
        ],
    )


def failures() -> Automation:
    """Told to a webhook where there is one; the event feed and logs/failures.log have it in any case."""
    return Automation(
        name="failures are told",
        description=f"Calls the webhook of {WEBHOOK}, where that is set when the cockpit starts.",
        trigger=EventTrigger(
            expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related=OURS,
            posture=Posture.Reactive,
            threshold=1,
        ),
        actions=[told()],
    )


def told() -> Any:
    address = os.environ.get(WEBHOOK)
    if not address:
        return DoNothing()
    from prefect.blocks.webhook import Webhook

    block: Any = Webhook(method="POST", url=SecretStr(address))
    saved = block.save("amazon-electra-failures", overwrite=True)
    text = "{{ flow_run.name }} is {{ flow_run.state.name }}: {{ flow_run.state.message }}"
    return CallWebhook(block_document_id=saved, payload=text)


if __name__ == "__main__":
    ensure()
