"""Run dump servers on this machine, and note the waits between attempts, which nobody waits."""

from collections.abc import Iterator

import pytest

from tests.flows.dumps.dump_server import Server, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as made:
        yield made


@pytest.fixture
def private_server() -> Iterator[Server]:
    """A server of a host that no setting names."""
    with serving(Server("127.0.0.2")) as made:
        yield made


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def this_machine_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMAZON_ELECTRA_PRIVATE_HOSTS", "127.0.0.1")
