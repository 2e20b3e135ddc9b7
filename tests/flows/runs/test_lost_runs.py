"""A run that was killed together with its server becomes Crashed when another one starts."""

import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from amazon_electra.flows.runs.lost_runs import crash_lost_runs, follow_run, mark_run
from amazon_electra.flows.store.store import Store
from tests.patience import PATIENCE_SECONDS, eventually

KILLED = """
import os, signal, sys
from amazon_electra.flows.store.store import Store
from tests.patience import PATIENCE_SECONDS, eventually
from amazon_electra.flows.runs.lost_runs import mark_run
with mark_run(Store(sys.argv[1]), *sys.argv[2:]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def start_run(prefect_home):
    """Starts a run that nothing will end; returns its id."""
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.states import Running

    @flow
    def endless(): ...

    def start():
        with get_client(sync_client=True) as client:
            return str(client.create_flow_run(endless, state=Running()).id)

    return start


def read_state(run):
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return client.read_flow_run(run).state.name


def test_only_runs_whose_process_is_gone_become_crashed(start_run, tmp_path):
    store, lost, living = Store(tmp_path), start_run(), start_run()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), lost], env=os.environ)
    assert killed.returncode == -signal.SIGKILL
    with mark_run(store, living):
        assert crash_lost_runs(store) == [lost]
        assert (read_state(lost), read_state(living)) == ("Crashed", "Running")
    assert crash_lost_runs(store) == []
    assert read_state(living) == "Running", "it ended by itself: Prefect knows of it what is so"


def test_a_followed_run_leaves_prefect_its_handler_of_sigterm(tmp_path):
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

    def start(**environment):
        words = [sys.executable, "-m", "tests.flows.runs.ended_flow", str(tmp_path)]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, env=os.environ | environment, text=True
        )
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


def test_a_run_that_is_cancelled_where_no_runner_hears_of_it_stays_cancelled(waiting_run):
    from prefect.states import Cancelling

    process, run = waiting_run()
    set_state(run, Cancelling())
    process.wait(timeout=PATIENCE_SECONDS)
    assert read_state(run) == "Cancelled"


def test_a_living_run_that_was_taken_for_lost_is_running_again(waiting_run):
    """The server's clock made a jump, or the computer slept."""
    from prefect.states import Crashed

    _, run = waiting_run()
    set_state(run, Crashed(message="no sign of life"))
    eventually(lambda: read_state(run) == "Running")


@pytest.mark.parametrize(("of_a_pool", "state"), [("true", "AwaitingRetry"), ("", "Crashed")])
def test_a_run_whose_worker_is_stopped_is_made_by_another_one(waiting_run, of_a_pool, state):
    process, run = waiting_run(AMAZON_ELECTRA_RESCHEDULE=of_a_pool)
    process.terminate()
    process.wait(timeout=PATIENCE_SECONDS)
    assert read_state(run) == state
