"""What a person does in the Prefect UI: starts a run, reads its report, is told of a wrong value,
approves; that its pages ask nobody else; and the report's page on paper.
"""

import re

import pytest
from playwright.sync_api import expect

from amazon_electra.model.report.document import convert_to_page
from amazon_electra.model.tracking.registry import Registry, name_model
from tests.patience import eventually

pytestmark = pytest.mark.timeout(2400)


def open_form(page, servers, deployment="domain-adaptation"):
    page.goto(f"{servers.prefect}/deployments")
    page.get_by_role("link", name=deployment, exact=True).first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    expect(page.get_by_text("Run Name")).to_be_visible()
    expect(field(page, "Paths", "textarea")).to_be_visible()


def field(page, title, kind="input"):
    """The field below a title of the form."""
    return page.locator(
        f"xpath=//*[starts-with(normalize-space(text()), '{title}')]/following::{kind}[1]"
    ).first


def fill(page, reviews, steps):
    """Fills the form until it keeps what is written: it is drawn anew once all of it has loaded."""
    for title, kind in (("pretraining", "Pretraining"), ("Steps", "int")):  # instead of None
        title = f"//*[starts-with(normalize-space(text()), '{title}')]"
        page.locator(f"xpath={title}/following::*[text()='{kind}'][1]").first.click()
    wanted = [(field(page, "Paths", "textarea"), f"sample:{reviews}")]
    wanted.append((field(page, "Steps"), str(steps)))

    def is_kept():
        for place, text in wanted:
            place.fill(text)
        page.wait_for_timeout(1000)
        return all(place.input_value() == text for place, text in wanted)

    eventually(is_kept)


def submitted(page, servers):
    """The id of the run that the form has started."""
    before = ids(servers)
    page.get_by_role("button", name="Submit").click()
    [run] = eventually(lambda: ids(servers) - before, lambda: page.inner_text("body"))
    return run


def ids(servers):
    """Of the runs of domain-adaptation."""
    with servers.client() as client:
        deployment = client.read_deployment_by_name("domain-adaptation/domain-adaptation").id
        return {
            str(run.id)
            for run in client.read_flow_runs(limit=200)
            if run.deployment_id == deployment
        }


def artifacts(servers, run):
    with servers.client() as client:
        return {
            artifact.key
            for artifact in client.read_artifacts(limit=200)
            if str(artifact.flow_run_id) == run
        }


def open_run(page, servers, run):
    page.goto(f"{servers.prefect}/runs/flow-run/{run}")
    expect(page.get_by_text("Task Runs").first).to_be_visible()


def wait_elsewhere(page, servers, run, state):
    """Wait until a run has a state; the page of a run would draw its graph all the time, and take a
    core from it.
    """
    page.goto("about:blank")
    servers.wait(run, state)


def wait_for_state(page, state):
    expect(page.get_by_text(state, exact=True).first).to_be_visible()


def test_pages_of_the_server_ask_nobody_else(servers, page, picture):
    """The fixture of the page fails where one of its requests has left this machine."""
    fetch = "address => fetch(address, {mode: 'no-cors'}).then(() => 'sent', () => 'refused')"
    page.goto(f"{servers.prefect}/deployments")
    page.get_by_text("domain-adaptation").first.wait_for()
    picture(page, "deployments")
    assert page.evaluate(fetch, f"{servers.mlflow}/health") == "refused", "another origin"
    assert page.evaluate(fetch, f"{servers.prefect}/api/health") == "sent"


def test_a_printed_report_has_the_folded_parts(page, tmp_path):
    """What is folded on the screen is on the paper."""
    file = tmp_path / "report.html"
    folded = '<details><summary>Folded</summary>\n\n<p class="inside">inside</p>\n\n</details>'
    file.write_text(convert_to_page("T", folded))
    page.goto(file.as_uri())
    assert not page.locator(".inside").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".inside").bounding_box()["height"] > 10


def test_a_wrong_value_is_refused_in_the_form(servers, page, picture):
    before = ids(servers)
    open_form(page, servers)
    fill(page, 300, -1)
    page.get_by_role("button", name="Submit").click()
    refused = page.get_by_text(re.compile("less than the minimum|greater than or equal")).first
    expect(refused).to_be_visible()
    picture(page, "wrong-value")
    assert ids(servers) == before


@pytest.mark.smoke
def test_a_run_from_the_form_completes_and_shows_its_report(servers, page, picture):
    open_form(page, servers)
    picture(page, "form")
    fill(page, 600, 20)
    run = submitted(page, servers)
    open_run(page, servers, run)
    wait_for_state(page, "Running")
    wait_elsewhere(page, servers, run, "Completed")
    open_run(page, servers, run)
    wait_for_state(page, "Completed")
    expected = {"plan", "report", "report-page", "pre-training-progress"}
    assert expected <= artifacts(servers, run)
    page.wait_for_timeout(3000)
    picture(page, "run")
    page.get_by_text("Artifacts", exact=True).first.click()
    page.get_by_text("report", exact=True).first.click()
    expect(page.get_by_text("sample-600 with recipe sample").first).to_be_visible()
    expect(page.get_by_text(re.compile("polarity")).first).to_be_visible()
    picture(page, "report-artifact")
    open_run(page, servers, run)
    page.get_by_text("Artifacts", exact=True).first.click()
    page.get_by_text("plan", exact=True).first.click()
    expect(page.get_by_text(re.compile(r"stages to do, ")).first).to_be_visible()
    expect(page.get_by_text(re.compile("to do +pretraining")).first).to_be_visible()
    picture(page, "plan")


def asking(servers):
    """A run of what is there already, whose model waits for a person."""
    parameters = {
        "dump": {"paths": ["sample:600"]},
        "pretraining": {"steps": 20},
        "promotion": {"mode": "ask"},
    }
    run = servers.start("domain-adaptation", **parameters)
    servers.wait(run, "Suspended")
    return run


def answer(page, servers, run, reason):
    """Opens the form that waits, and gives a reason."""
    open_run(page, servers, run)
    page.get_by_role("button", name="Resume").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text(re.compile("By the rule: polarity"))).to_be_visible()
    dialog.locator("textarea").first.fill(reason)
    return dialog


def submit_answer(page, servers, run, dialog):
    """Submits the form, and waits for the run that goes on."""
    dialog.get_by_role("button", name="Submit").click()
    expect(dialog).to_be_hidden()
    wait_elsewhere(page, servers, run, "Completed")


def test_a_person_rejects_one_model_and_approves_it_later(servers, page, picture):
    registry = Registry(servers.mlflow, name_model("polarity"))
    run = asking(servers)
    version = registry.get_by_alias("challenger")["version"]
    assert "waits for approval" in registry.get_by_alias("challenger")["reason"]
    dialog = answer(page, servers, run, "too small")
    picture(page, "approval")
    submit_answer(page, servers, run, dialog)
    assert registry.get_by_alias("champion") == {}
    assert registry.get_by_alias("challenger")["reason"].startswith(
        "not approved: too small; polarity"
    )

    run = asking(servers)
    dialog = answer(page, servers, run, "it will do")
    dialog.get_by_role("switch").click()
    expect(dialog.get_by_role("switch")).to_have_attribute("aria-checked", "true")
    submit_answer(page, servers, run, dialog)
    assert registry.get_by_alias("champion")["version"] == version
    assert registry.get_by_alias("champion")["reason"].startswith("approved: it will do; polarity")
