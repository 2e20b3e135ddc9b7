"""The names of tests must be the same in every worker that collects them, and so are the examples
that Hypothesis makes up: without a deadline, for the machine may be slow. `pytest
--hypothesis-profile default` makes up others.

Children of tests do not look for modules in the folder where they are started, so the checkout is
on their path.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])
)


with suppress(ImportError):  # the environment of XLA has none
    from hypothesis import settings

    settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _umask_as_before():
    """Commands that run in this process keep what they write to themselves."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def mlflow_template(tmp_path_factory):
    """An MLflow database with no run, to be copied: MLflow takes seconds to make one."""
    from model.tracking.mlflow_client import create_client

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    create_client(f"sqlite:///{file}")
    return file


@pytest.fixture
def mlflow_uri(tmp_path, mlflow_template):
    """The address of an MLflow database of this test's own."""
    return f"sqlite:///{shutil.copy(mlflow_template, tmp_path / 'mlflow.db')}"


def pytest_make_parametrize_id(config, val, argname):
    """Bytes by their number: packed ones hold the second in which they were packed."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None
