"""Servers of its own (`amazon-electra up`) and a real browser; AMAZON_ELECTRA_BROWSER=1 asks for
these tests.
"""

import os
import shutil
from base64 import b64encode
from pathlib import Path

import pytest

from amazon_electra.flows.servers.access import read_password
from tests import served

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
SCREENSHOTS = os.environ.get("AMAZON_ELECTRA_SCREENSHOTS", "")
"""A folder that gets the pictures; where it is empty they lie below pytest's temporary folder."""
PATIENCE = 180_000
"""Milliseconds for a click, a picture or what a page shows in the end: on a loaded machine the
browser itself is slow.
"""


def pytest_collection_modifyitems(items):
    missing = "" if CHROMIUM else "no chromium: apt-get install chromium"
    if not os.environ.get("AMAZON_ELECTRA_BROWSER"):
        missing = "AMAZON_ELECTRA_BROWSER=1 asks for the browser tests"
    for item in items:
        if missing and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    """Up while the tests run, down after them."""
    with served.serve(tmp_path_factory.mktemp("servers") / "store") as up:
        yield up


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser, servers):
    """A page that may only talk to this machine, of a person who is logged in to both servers."""
    word = read_password(servers.store)
    name, _, secret = word.partition(":")
    context = browser.new_context(
        viewport={"width": 1400, "height": 1000},
        http_credentials={"username": name, "password": secret},
    )
    known = b64encode(word.encode()).decode()
    context.add_init_script(f"try {{ localStorage['prefect-password'] = '{known}' }} catch {{}}")
    outside = []

    def watch(request):
        if not request.url.startswith(("http://127.0.0.1", "file:", "data:", "blob:")):
            outside.append(request.url)

    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    opened.on("request", watch)
    opened.on(
        "requestfailed",
        lambda request: print("failed:", request.method, request.url, request.failure),
    )
    opened.on(
        "response", lambda got: got.status >= 500 and print(got.status, got.request.method, got.url)
    )
    yield opened
    context.close()
    assert outside == []


@pytest.fixture
def picture(tmp_path_factory):
    """Takes a screenshot, kept in the folder that is asked for or beside the store."""

    def take(page, name):
        folder = (
            Path(SCREENSHOTS) if SCREENSHOTS else tmp_path_factory.getbasetemp() / "screenshots"
        )
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(folder / f"{name}.png"))

    return take
