"""What Prefect does by itself: one training at a time, lost runs marked, failures reported."""

import os
from datetime import timedelta
from typing import Any

from prefect.automations import Automation, EventTrigger
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import CallWebhook, ChangeFlowRunState, DoNothing
from prefect.events.schemas.automations import Posture
from pydantic import SecretStr

from amazon_electra.flows.servers.settings import LOST_SECONDS, PAUSED_EVENT, TAG
from amazon_electra.flows.store.stage import ACCELERATOR

OUR_RUNS: dict[str, str | list[str]] = {
    "prefect.resource.role": "tag",
    "prefect.resource.id": f"prefect.tag.{TAG}",
}
"""Heartbeats and changes of state name the run's tags; runs of others on the same server are left
alone.
"""
WEBHOOK = "AMAZON_ELECTRA_WEBHOOK"
"""Environment variable with the address that is called when a run fails; it may be a secret, so it
is never logged.
"""
ENDED = ("Completed", "Failed", "Crashed", "Cancelled", "Paused", "Suspended")
"""States after which no heartbeat is expected."""


def create_automations() -> None:
    """Create or renew the concurrency limit and the automations; a second call doubles nothing."""
    with get_client(sync_client=True) as client:
        client.create_concurrency_limit(tag=ACCELERATOR, concurrency_limit=1)
        existing = {automation.name: automation for automation in client.read_automations()}
    for automation in build_automations():
        if automation.name in existing:
            automation.id = existing[automation.name].id
            automation.update()
        else:
            automation.create()


def build_automations() -> list[Automation]:
    """Return what marks runs Crashed whose machine was lost with them, and what reports failures,
    which the event feed has in any case.
    """
    ours: dict[str, Any] = {
        "match": {"prefect.resource.id": "prefect.flow-run.*"},
        "match_related": OUR_RUNS,
        "threshold": 1,
    }
    lost = Automation(
        name="lost runs are crashed",
        description=f"A run without a heartbeat for {LOST_SECONDS // 60} minutes; start it again, "
        "it continues where it was.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={
                "prefect.flow-run.heartbeat",
                PAUSED_EVENT,
                *(f"prefect.flow-run.{state}" for state in ENDED),
            },
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            within=timedelta(seconds=LOST_SECONDS),
            **ours,
        ),
        actions=[
            ChangeFlowRunState(
                name=None,
                state=StateType.CRASHED,
                message="no sign of life; start it again",
                force=False,
            )
        ],
    )
    call: Any = DoNothing()
    if address := os.environ.get(WEBHOOK):
        block: Any = Webhook(method="POST", url=SecretStr(address))
        block_id = block.save("amazon-electra-failures", overwrite=True)
        text = "{{ flow_run.name }} is {{ flow_run.state.name }}: {{ flow_run.state.message }}"
        call = CallWebhook(block_document_id=block_id, payload=text)
    failed = Automation(
        name="failures are told",
        description=f"Calls the webhook of {WEBHOOK}, if that is set when `up` starts.",
        trigger=EventTrigger(
            expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
            posture=Posture.Reactive,
            **ours,
        ),
        actions=[call],
    )
    return [lost, failed]
