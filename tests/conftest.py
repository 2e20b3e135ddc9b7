"""The names of tests must be the same in every worker that collects them, and so are the examples
that Hypothesis makes up: without a deadline, for the machine may be slow. `pytest
--hypothesis-profile default` makes up others.

Children of tests do not look for modules in the folder where they are started, so the checkout is
on their path.
"""

import os
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


def pytest_make_parametrize_id(config, val, argname):
    """Bytes by their number: packed ones hold the second in which they were packed."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None
