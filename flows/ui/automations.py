"""The automation in Prefect: it marks lost runs."""

from datetime import timedelta

from prefect.automations import Automation, EventTrigger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import Posture

from amazon_electra.flows.servers.settings import LOST_SECONDS, PAUSED_EVENT, TAG

ENDED = ("Completed", "Failed", "Crashed", "Cancelled", "Paused", "Suspended")
"""States after which no heartbeat is expected."""


def create_automations() -> None:
    """Create or renew the automation; a second call doubles nothing."""
    automation = build_automation()
    with get_client(sync_client=True) as client:
        earlier = [one for one in client.read_automations() if one.name == automation.name]
    if earlier:
        automation.id = earlier[0].id
        automation.update()
    else:
        automation.create()


def build_automation() -> Automation:
    """Return what marks runs Crashed whose machine was lost with them. Heartbeats and changes of
    state name the run's tags: runs of others on the same server are left alone.
    """
    heartbeat, message = "prefect.flow-run.heartbeat", "no sign of life; start it again"
    ends = {f"prefect.flow-run.{state}" for state in ENDED}
    crash = ChangeFlowRunState(name=None, state=StateType.CRASHED, message=message, force=False)
    return Automation(
        name="lost runs are crashed",
        description=f"A run without a heartbeat for {LOST_SECONDS // 60} minutes; start it again, "
        "it continues where it was.",
        trigger=EventTrigger(
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={
                "prefect.resource.role": "tag",
                "prefect.resource.id": f"prefect.tag.{TAG}",
            },
            after={heartbeat},
            expect={heartbeat, PAUSED_EVENT, *ends},
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=LOST_SECONDS),
        ),
        actions=[crash],
    )
