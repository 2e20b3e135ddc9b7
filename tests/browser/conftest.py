"""A cockpit of its own (`amazon-electra up`) and a real browser; AMAZON_ELECTRA_BROWSER=1 asks for these tests."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.servers import free_port

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
SCREENSHOTS = os.environ.get("AMAZON_ELECTRA_SCREENSHOTS", "")
"""A folder that gets the pictures; none are taken where it is empty."""


def pytest_collection_modifyitems(items):
    missing = "" if os.environ.get("AMAZON_ELECTRA_BROWSER") else "AMAZON_ELECTRA_BROWSER=1 asks for the browser tests"
    missing = missing or ("" if CHROMIUM else "no chromium: apt-get install chromium")
    items.sort(key=lambda item: item.path.name == "test_mlflow_ui.py")
    for item in items:
        if missing and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=missing))


@dataclass(frozen=True)
class Cockpit:
    store: Path
    prefect: str
    mlflow: str


@pytest.fixture(scope="session")
def cockpit(tmp_path_factory):
    """Up while the tests run, down after them."""
    store, prefect, mlflow = tmp_path_factory.mktemp("cockpit") / "store", free_port(), free_port()
    command = [sys.executable, "-m", "flows.cli"]
    ports = ["--prefect-port", str(prefect), "--mlflow-port", str(mlflow)]
    quiet = {k: v for k, v in os.environ.items() if k not in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")}
    subprocess.run([*command, "up", "--detach", "--store", str(store), *ports], check=True, timeout=200, env=quiet)
    yield Cockpit(store, f"http://127.0.0.1:{prefect}", f"http://127.0.0.1:{mlflow}")
    subprocess.run([*command, "down", "--store", str(store)], check=True, timeout=60, env=quiet)


@pytest.fixture(scope="session")
def adapted(cockpit):
    """A finished run; made here where the test of the form has not made it before."""
    command = [sys.executable, "-m", "flows.cli", "run", "--store", str(cockpit.store), "--dump", "sample:600"]
    subprocess.run([*command, "--set", "pretraining.steps=20"], check=True, timeout=800)
    return cockpit


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser):
    """A page that may only talk to this machine."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    outside = []

    def watch(request):
        if not request.url.startswith(("http://127.0.0.1", "file:", "data:", "blob:")):
            outside.append(request.url)

    opened = context.new_page()
    opened.on("request", watch)
    yield opened
    context.close()
    assert outside == []


@pytest.fixture
def picture():
    """Takes a screenshot where they are asked for."""

    def take(page, name):
        if SCREENSHOTS:
            page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"))

    return take
