"""The flow killed in the middle of a stage: nothing goes on running, and the next run continues
there.
"""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from amazon_electra.flows.store.store import Store
from tests.flows.test_processes import alive, read_pid
from tests.patience import eventually
from tests.served import CLEAN


def start(store, slow_stage):
    """The toy graph as a process of its own; the slow stage takes an hour unless it is killed."""
    ways = {slow_stage: {"seconds_a_step": 1000}}
    command = [sys.executable, "-m", "tests.flows.toy_graph", str(store), json.dumps(ways)]
    return subprocess.Popen(command, env=CLEAN, start_new_session=True)


@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGINT])
def test_killed_in_any_stage_the_next_run_continues_there(tmp_path, signal_sent):
    store = tmp_path / "store"
    for stage in ("corpus", "pretraining", "finetuning", "report"):
        flow = start(store, stage)
        eventually(lambda stage=stage: list(store.glob(f"toy-{stage}/*/pid")))
        job = read_pid(next(store.glob(f"toy-{stage}/*/pid")))
        below = [child.pid for child in psutil.Process(flow.pid).children(recursive=True)]
        assert job in below
        os.kill(flow.pid, signal_sent)
        flow.wait()
        eventually(lambda below=below: not any(alive(pid) for pid in below))
        assert not list(store.glob(f"toy-{stage}/*/manifest.json"))
    final = subprocess.run([sys.executable, "-m", "tests.flows.toy_graph", str(store)])
    assert final.returncode == 0
    assert len(Store(store).list_manifests()) == 8
    for stage in ("corpus", "pretraining", "report"):
        assert next(store.glob(f"toy-{stage}/*/attempts")).read_text() == "xx", "started twice"
