"""The deployments that `amazon-electra up` serves: a run as the form starts it, approved by a
person; new files, of which an event tells the watcher.
"""

from pathlib import Path

import pytest
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.events import emit_event
from prefect.flow_runs import resume_flow_run

from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.registry import Registry, name_model
from tests.journeys.shell import write_shop
from tests.patience import eventually

pytestmark = pytest.mark.slow
SMALL = {"arms": ["tfidf"], "seeds": [0]}


def test_a_person_approves_the_champion(served, tmp_path):
    dump = write_shop(tmp_path / "shop.csv", 400, 20)
    run = served.start(
        "domain-adaptation",
        dump={"paths": [str(dump)], "labels": ["aspects"]},
        finetuning={**SMALL, "tasks": ["label:aspects"]},
        promotion={"mode": "ask"},
    )
    served.wait(run, "Suspended")
    registry = Registry(served.mlflow, name_model("label:aspects"))
    version = registry.get_by_alias("challenger")["version"]
    resume_flow_run(run, run_input={"approve": True, "reason": "it will do"})
    served.wait(run, "Completed")
    champion = registry.get_by_alias("champion")
    assert champion["version"] == version
    assert "it will do" in champion["reason"]


def test_an_event_starts_one_run_of_all_files(served):
    with served.client() as client:
        deployed = client.read_deployment_by_name("domain-adaptation/domain-adaptation")
        own = {**deployed.parameters, "finetuning": {**SMALL, "tasks": ["polarity"]}}
        client.update_deployment(deployed.id, DeploymentUpdate(parameters=own))
    inbox = served.store / "inbox"
    inbox.mkdir(exist_ok=True)
    for name in ("may", "june"):
        write_shop(inbox / f"{name}.csv", 200, 30_000)

    def list_runs(deployment):
        with served.client() as client:
            known = client.read_deployment_by_name(f"{deployment}/{deployment}")
            runs = client.read_flow_runs(limit=200)
        return [run for run in runs if run.deployment_id == known.id and not run.auto_scheduled]

    def announce():
        """Return the runs of the files, once the watcher has looked for an event."""
        before = {run.id for run in list_runs("watch-dumps")}
        emit_event(event="reviews.dump.arrived", resource={"prefect.resource.id": "reviews.inbox"})
        [look] = eventually(
            lambda: [run for run in list_runs("watch-dumps") if run.id not in before]
        )
        served.wait(str(look.id), "Completed")
        return [run for run in list_runs("domain-adaptation") if "june.csv" in str(run.parameters)]

    assert announce() == [], "the next look tells whether they still change"
    [run] = announce()
    served.wait(str(run.id), "Completed")
    corpora = [one for one in Store(served.store).list_manifests() if one["stage"] == "corpus"]
    names = [{Path(name).name for name in one["result"]["files"]} for one in corpora]
    assert {"may.csv", "june.csv"} in names
    assert len(announce()) == 1
