"""Two processes sum gradients while they come, agree on what did not fit, and round if asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.synthetic_shards import write_shards

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Return what one process saw alone, and what each of two saw."""
    folder = tmp_path_factory.mktemp("ranks")
    shards = write_shards(folder / "shards", sequences=60)
    common = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    meeting = {"AMAZON_ELECTRA_RENDEZVOUS": f"file://{folder / 'meeting'}", "WORLD_SIZE": "2"}
    sides = [{}, *({**meeting, "RANK": str(rank)} for rank in range(2))]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.model.processes.two_ranks", shards],
            stdout=subprocess.PIPE,
            text=True,
            env=common | side,
            cwd=ROOT,
        )
        for side in sides
    ]
    told = [process.communicate(timeout=200)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    return [json.loads(text.splitlines()[-1]) for text in told]


def test_two_processes_lose_what_one_loses(seen):
    alone, first, second = seen
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    assert first["losses"] == second["losses"]
    assert first["weights"] == second["weights"]


def test_buckets_are_sent_before_the_backward_pass_is_over(seen):
    assert all(rank["sent_before_the_last_gradient"] for rank in seen[1:])


def test_when_one_runs_out_of_memory_all_halve_and_take_the_same_step(seen):
    """Dropout is on: halves drop out what the whole would have."""
    alone, first, second = seen
    assert first["after_failure"] == pytest.approx(alone["losses"], rel=1e-5)
    assert first["tried"] == second["tried"] == [4, 4, 2, 2, 2, 2]


def test_gradients_in_bf16_change_the_losses_a_little(seen):
    alone, first, second = seen
    assert first["rounded"] == second["rounded"]
    assert first["rounded"] == pytest.approx(alone["losses"], rel=1e-4)
    assert first["rounded"] != first["losses"]
