"""A run hears of its cancellation also where no runner does."""

import subprocess
import sys

from tests.patience import PATIENCE_SECONDS


def test_a_run_without_runner_is_cancelled(prefect_home, tmp_path):
    """In a process of its own."""
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    words = [sys.executable, "-m", "tests.flows.runs.ended_flow", str(tmp_path)]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process,
        get_client(sync_client=True) as client,
    ):
        try:
            run = process.stdout.readline().strip()
            client.set_flow_run_state(run, Cancelling(), force=True)
            process.wait(timeout=PATIENCE_SECONDS)
            assert client.read_flow_run(run).state.name == "Cancelled"
        finally:
            process.kill()
