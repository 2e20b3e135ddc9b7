"""One store with a Prefect and an MLflow server, as `amazon-electra up` starts them, for all
journeys; each has a folder of its own, in which its commands are typed.
"""

import pytest

from tests.journeys.shell import Shell
from tests.served import serve


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("journeys") / "store") as up:
        yield up


@pytest.fixture
def shell(tmp_path, served):
    return Shell(tmp_path, served.store, {})
