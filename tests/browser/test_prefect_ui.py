"""What a person does in the Prefect UI: starts a run, reads its report, is told of a wrong value, cancels."""

import re
import time

import psutil
import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.timeout(900)


def open_form(page, cockpit, deployment="domain-adaptation"):
    page.goto(f"{cockpit.prefect}/deployments")
    page.get_by_role("link", name=deployment, exact=True).first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    expect(page.get_by_text("Run Name")).to_be_visible()
    page.wait_for_timeout(1000)


def field(page, title, kind="input"):
    """The field below a title of the form."""
    return page.locator(f"xpath=//*[starts-with(normalize-space(text()), '{title}')]/following::{kind}[1]").first


def fill(page, reviews, steps):
    field(page, "Paths", "textarea").fill(f"sample:{reviews}")
    field(page, "Steps").fill(str(steps))


def submit(page):
    page.get_by_role("button", name="Submit").click()


def open_run(page, cockpit, name):
    """The newest run of this name, opened; it has its name once it has begun."""
    link = page.get_by_role("link", name=re.compile(name)).first
    for _ in range(24):
        page.goto(f"{cockpit.prefect}/runs")
        page.wait_for_timeout(5000)
        if link.is_visible():
            break
    link.click()


def wait_for_state(page, state, seconds):
    expect(page.get_by_text(state, exact=True).first).to_be_visible(timeout=seconds * 1000)


def test_a_wrong_value_is_refused_in_the_form(cockpit, page, picture):
    open_form(page, cockpit)
    fill(page, 300, -1)
    submit(page)
    expect(page.get_by_text(re.compile("less than the minimum|greater than or equal")).first).to_be_visible(
        timeout=10_000
    )
    picture(page, "wrong-value")
    assert "/run?" in page.url or page.url.endswith("/run")


def test_a_run_from_the_form_completes_and_shows_its_report(cockpit, page, picture):
    open_form(page, cockpit)
    picture(page, "form")
    fill(page, 600, 20)
    submit(page)
    open_run(page, cockpit, "sample-600 · tiny")
    wait_for_state(page, "Completed", 800)
    page.wait_for_timeout(2000)
    picture(page, "run")
    page.get_by_text("Artifacts", exact=True).first.click()
    page.get_by_text("report", exact=True).first.click()
    expect(page.get_by_text("sample-600 with preset tiny").first).to_be_visible(timeout=20_000)
    expect(page.get_by_text(re.compile("polarity")).first).to_be_visible()
    picture(page, "report-artifact")


def test_a_cancelled_run_ends_its_children_and_keeps_its_checkpoint(cockpit, page, picture):
    open_form(page, cockpit)
    fill(page, 600, 100_000)
    submit(page)
    deadline = time.monotonic() + 600
    while not (training := processes("model.pretrain", cockpit.store)):
        assert time.monotonic() < deadline
        time.sleep(1)
    newest = max(cockpit.store.glob("pretraining/*/log.txt"), key=lambda log: log.stat().st_mtime).parent
    while not (newest / "metrics.jsonl").exists():
        assert time.monotonic() < deadline
        time.sleep(1)
    open_run(page, cockpit, "sample-600 · tiny")
    page.get_by_role("button", name="Cancel").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
    began = time.monotonic()
    while processes("model.pretrain", cockpit.store):
        assert time.monotonic() - began < 30, training
        time.sleep(0.5)
    wait_for_state(page, "Cancelled", 60)
    picture(page, "cancelled")
    assert list(newest.glob("checkpoints/*"))


def processes(words, store):
    """Processes of this store whose command line has these words."""
    lines = [" ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
    return [line for line in lines if words in line and str(store) in line and "guard.py" not in line]
