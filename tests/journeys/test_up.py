"""The deployments that `amazon-electra up` serves: a run as the form starts it, approved by a
person; a new file that the watcher finds.
"""

import os
import time

import pytest
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.flow_runs import resume_flow_run

from amazon_electra.flows.servers.mlflow_server import resolve_mlflow_uri
from amazon_electra.flows.store.store import Store
from amazon_electra.model.tracking.registry import Registry, name_model
from tests.journeys.shell import write_shop
from tests.patience import eventually

pytestmark = pytest.mark.slow
SMALL = {"arms": ["tfidf"], "seeds": [0]}


def test_a_person_approves_the_champion(served, tmp_path):
    dump = write_shop(tmp_path / "shop.csv", 400, 20)
    registry = Registry(resolve_mlflow_uri(served.store), name_model("label:aspects"))
    run = served.start(
        "domain-adaptation",
        dump={"paths": [str(dump)], "labels": ["aspects"]},
        finetuning={**SMALL, "tasks": ["label:aspects"]},
        promotion={"mode": "ask"},
    )
    served.wait(run, "Suspended")
    version = registry.get_by_alias("challenger")["version"]
    resume_flow_run(run, run_input={"approve": True, "reason": "it will do"})
    served.wait(run, "Completed")
    champion = registry.get_by_alias("champion")
    assert champion["version"] == version
    assert "it will do" in champion["reason"]


def test_the_watcher_starts_a_run_of_a_new_file(served):
    with served.client() as client:
        deployed = client.read_deployment_by_name("domain-adaptation/domain-adaptation")
        own = {**deployed.parameters, "finetuning": {**SMALL, "tasks": ["polarity"]}}
        client.update_deployment(deployed.id, DeploymentUpdate(parameters=own))
    inbox = served.store / "inbox"
    inbox.mkdir(exist_ok=True)
    dump = write_shop(inbox / "june.csv", 300, 30_000)
    os.utime(dump, (time.time() - 3600,) * 2)

    def find_runs():
        with served.client() as client:
            return [
                run
                for run in client.read_flow_runs(limit=200)
                if "june.csv" in str(run.parameters.get("dump"))
            ]

    def look():
        served.wait(served.start("watch-dumps"), "Completed")
        return find_runs()

    [run] = eventually(look)
    served.wait(str(run.id), "Completed")
    look()
    assert len(find_runs()) == 1
    dumps = [one for one in Store(served.store).list_manifests() if one["stage"] == "dump"]
    assert any("june" in one["result"]["name"] for one in dumps)
