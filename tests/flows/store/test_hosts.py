"""A host that is killed in the middle of a job, and another one that goes on: real processes, which
share a bucket and nothing else.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from flows.runner.stage_runner import StageRunner
from flows.store.store import Store
from tests.flows.toy_graph import job
from tests.patience import eventually
from tests.s3_server import connect

WITHOUT_TRACKING = None  # no stage here is tracked


def run_host(address: str, gate: str) -> None:
    """Make one stage in the store, as a flow does; its last step waits for the gate."""
    stage = job("pretraining", {}, {"steps": 2, "gate": gate})
    runner = StageRunner(Store(address), [], WITHOUT_TRACKING)
    print(json.dumps(runner.complete_stage(stage)["result"]))


def start(s3, address, gate, state):
    own = {"AMAZON_ELECTRA_STATE": str(state), "AMAZON_ELECTRA_LEASE_SECONDS": "10"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.flows.store.test_hosts", address, str(gate)],
        env=os.environ | s3.environment() | own,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_host_that_is_killed_is_replaced_by_another_that_continues(s3, address, tmp_path):
    gate, there = tmp_path / "gate", connect(s3)
    first = start(s3, address, gate, tmp_path / "first")
    eventually(lambda: there.glob(f"{address}/pretraining/*/0*/attempts"))
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    assert not there.glob(f"{address}/pretraining/*/manifest.json")
    gate.write_text("")
    second, third = (start(s3, address, gate, tmp_path / name) for name in ("second", "third"))
    made = [json.loads(one.communicate()[0])["steps"] for one in (second, third)]
    assert made == [2, 2]
    [attempts] = there.glob(f"{address}/pretraining/*/0*/attempts")
    assert there.cat_file(attempts) == b"xx", "the second went on, the third waited and used it"
    assert there.glob(f"{address}/pretraining/*/attempts/*") == []


if __name__ == "__main__":
    run_host(*sys.argv[1:])
