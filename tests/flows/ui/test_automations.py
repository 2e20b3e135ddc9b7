"""The automation is about our runs, by their tag, and nobody else's on the same server."""

from pathlib import Path
from uuid import uuid4

from amazon_electra.flows.cli import terminal
from amazon_electra.flows.runner import processes
from amazon_electra.flows.servers.settings import TAG
from amazon_electra.flows.ui import automations
from tests.flows.forms import fill_parameters


def test_the_automation_is_about_our_runs_alone():
    from prefect.server.events.schemas.automations import EventTrigger
    from prefect.server.events.schemas.events import RelatedResource, Resource

    trigger = EventTrigger.model_validate(automations.build_automation().trigger.model_dump())
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
