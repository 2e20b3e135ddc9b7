"""The names of tests must be the same in every worker that collects them, and so are the examples
that Hypothesis makes up: without a deadline, for the machine may be slow. `pytest
--hypothesis-profile default` makes up others.

Children of tests do not look for modules in the folder where they are started, so the checkout is
on their path, and so is the folder of amazon_electra.
"""

import logging
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PATHS = [str(ROOT), str(ROOT / "deploy" / "package")]
os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")]).rstrip(":")
sys.path[:0] = PATHS


with suppress(ImportError):  # the environment of XLA has none
    from hypothesis import settings

    settings.load_profile("ci")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Each test draws the same numbers, whatever ran before it."""
    random.seed(0)
    for name, seed in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if module := sys.modules.get(name):
            attrgetter(seed)(module)(0)


@pytest.fixture(autouse=True)
def _umask_as_before():
    """Commands that run in this process keep what they write to themselves."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def make_once(tmp_path_factory):
    """Make a folder once for all processes of pytest-xdist: `make_once(name, write)` returns the
    folder that `write` has filled, to be read or copied.
    """
    from filelock import FileLock

    here = tmp_path_factory.getbasetemp()
    shared = here.parent if "PYTEST_XDIST_WORKER" in os.environ else here

    def make(name, write):
        folder, part = shared / name, shared / f"{name}.part"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                part.mkdir()
                write(part)
                part.rename(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    """The folder of a vocabulary of a few words, to be read or copied."""
    from tests.tokenizer_kinds import MIXER_WORDS, write_word_pieces

    return write_word_pieces(tmp_path_factory.mktemp("vocabulary"), MIXER_WORDS)


@pytest.fixture(scope="session")
def mlflow_template(make_once):
    """An MLflow database with no run, to be copied: MLflow takes seconds to make one."""

    def write(folder):
        from amazon_electra.model.tracking.mlflow_client import create_client

        create_client(f"sqlite:///{folder}/mlflow.db")

    return make_once("mlflow", write) / "mlflow.db"


@pytest.fixture(scope="session")
def prefect_template(make_once):
    """A database of Prefect's server with no run, to be copied: a server takes eight CPU seconds
    to make one.
    """

    def write(folder):
        url = f"sqlite+aiosqlite:///{folder}/prefect.db"
        places = {"PREFECT_API_DATABASE_CONNECTION_URL": url, "PREFECT_HOME": str(folder / "home")}
        upgrade = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
        subprocess.run(upgrade, env=os.environ | places, check=True, capture_output=True)

    return make_once("prefect", write) / "prefect.db"


@pytest.fixture(scope="session")
def begin_store(mlflow_template, prefect_template):
    """Put databases of Prefect and MLflow with no run into a new store."""

    def begin(store):
        for template in (mlflow_template, prefect_template):
            (store / template.stem).mkdir(parents=True, exist_ok=True)
            shutil.copy(template, store / template.stem / template.name)
        return store

    return begin


@pytest.fixture
def mlflow_uri(tmp_path, mlflow_template):
    """The address of an MLflow database of this test's own."""
    return f"sqlite:///{shutil.copy(mlflow_template, tmp_path / 'mlflow.db')}"


def pytest_make_parametrize_id(config, val, argname):
    """Bytes by their number: packed ones hold the second in which they were packed."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture
def heard(caplog):
    """What our own loggers say, also after Prefect or a Beam job has set up the logging of this
    process its own way.
    """
    ours = logging.getLogger("amazon_electra")
    caplog.set_level(logging.WARNING, ours.name)
    ours.addHandler(caplog.handler)
    yield caplog
    ours.removeHandler(caplog.handler)
