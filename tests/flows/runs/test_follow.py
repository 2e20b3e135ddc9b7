"""A run hears of its cancellation also where no runner does."""

import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from amazon_electra.flows.runs.follow import follow_run
from amazon_electra.flows.store.store import Store
from tests.patience import PATIENCE_SECONDS


def read_state(run):
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return client.read_flow_run(run).state.name


def test_prefect_keeps_its_handler_of_sigterm(tmp_path):
    """Prefect takes a SIGTERM for a cancellation only while its own handler is in place: with
    another one, a run that was cancelled in the UI is Crashed.
    """

    def of_prefect(number, frame): ...

    before = signal.signal(signal.SIGTERM, of_prefect)
    try:
        with follow_run(Store(tmp_path), str(uuid4())):
            assert signal.getsignal(signal.SIGTERM) is of_prefect
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def waiting_run(prefect_home, tmp_path):
    """A run in a process of its own, without Prefect's runner; the process, and the run's id."""

    def start():
        words = [sys.executable, "-m", "tests.flows.runs.ended_flow", str(tmp_path)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        return process, process.stdout.readline().strip()

    started = []
    yield start
    for process in started:
        process.kill()
        process.wait()


def set_state(run, state):
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run, state, force=True)


def test_a_run_without_runner_is_cancelled(waiting_run):
    from prefect.states import Cancelling

    process, run = waiting_run()
    set_state(run, Cancelling())
    process.wait(timeout=PATIENCE_SECONDS)
    assert read_state(run) == "Cancelled"
