"""A run that a person starts in the form, on servers and workers as deploy/compose.yaml has them:
each pool's worker makes its stages, on a host and as a user of its own.
"""

from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from tests.browser.test_prefect_ui import (
    fill,
    open_form,
    open_run,
    submitted,
    wait_elsewhere,
    wait_for_state,
)
from tests.compose import FILLED
from tests.faults.test_pools import DATA, DATA_USER, FLOWS_USER, TRAINING, TRAINING_USER
from tests.hosts import read_children, serve_for_users, serve_host
from tests.postgresql import IS_HERE

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not IS_HERE, reason="needs PostgreSQL, and root to become its user"),
]
WORKERS = {"flows": FLOWS_USER, "cpu": DATA_USER, "accelerator": TRAINING_USER}
"""The user of each pool's worker."""


@pytest.fixture(scope="module")
def shared():
    with serve_for_users() as shared:
        yield shared


def shrink_form(served):
    """Let the form begin with one fine-tuning for each encoder."""
    from prefect.client.schemas.actions import DeploymentUpdate

    small = {"seeds": [0], "tasks": ["polarity"]}
    with served.client() as client:
        found = client.read_deployment_by_name("domain-adaptation/domain-adaptation")
        given = found.parameters | {"finetuning": found.parameters.get("finetuning", {}) | small}
        client.update_deployment(found.id, DeploymentUpdate(parameters=given))


def log_in(page, served):
    page.goto(served.prefect)
    page.locator("input[type=password]").fill(FILLED["PREFECT_API_AUTH_STRING"])
    page.get_by_role("button", name="Login").click()
    expect(page.get_by_text("Deployments").first).to_be_visible()


def test_a_run_from_the_form_goes_through_both_pools(shared, page, picture):
    served = shared.served
    shrink_form(served)
    with ExitStack() as ends:
        hosts = {
            pool: ends.enter_context(serve_host(shared, pool, f"worker-{pool}", user=user))
            for pool, user in WORKERS.items()
        }
        log_in(page, served)
        open_form(page, served)
        fill(page, 300, 20)
        run = submitted(page, served)
        wait_elsewhere(page, served, run, "Completed")
        children = read_children(served, run)
        assert {child.work_pool_name for child in children} == {"cpu", "accelerator"}
        assert served.run(run).work_pool_name == "flows"
        assert hosts["flows"].list_made() == {"report"}
        assert hosts["cpu"].list_made() == DATA
        assert hosts["accelerator"].list_made() >= TRAINING
        open_run(page, served, run)
        wait_for_state(page, "Completed")
        page.get_by_text("Subflow Runs", exact=True).first.click()
        for child in children:
            expect(page.get_by_text(child.name, exact=True).first).to_be_visible()
        picture(page, "pools-from-the-form")
