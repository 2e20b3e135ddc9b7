"""What may happen to a run that was started from the UI: two at once, a cancellation, kill -9 of
a flow. All on the same servers, whose data are made once; each test has a seed of its own.
"""

from pathlib import Path

import psutil
import pytest

from amazon_electra.flows.store.store import LOG, REQUEST
from amazon_electra.model.tracking.metrics_log import read_metrics
from tests.patience import eventually
from tests.served import serve

JOB = "amazon_electra.flows.run_stage"
ENDLESS = 1_000_000
"""Steps: days."""
DUMP = {"paths": ["sample:300"]}
SHAPE = {"batch": "4", "checkpoint_every": "5", "log_every": "1"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("faults") / "store") as up:
        yield up


@pytest.fixture(autouse=True)
def _nothing_left_running(served):
    """A test that failed must not fail the next one."""
    yield
    with served.client() as client:
        runs = client.read_flow_runs(limit=200)
    for run in runs:
        if run.state and not run.state.is_final() and run.start_time:
            served.cancel(str(run.id))
    eventually(lambda: not served.jobs(JOB))


def train(served, seed):
    return served.start(
        "domain-adaptation",
        dump=DUMP,
        pretraining={"steps": ENDLESS, "seed": seed, "settings": SHAPE},
        finetuning={"arms": ["pre-trained"]},
        promotion={"mode": "off"},
    )


def list_trainings(served):
    """The processes that pre-train, by the folders whose logs they write."""
    return {
        Path(file.path).parent: process
        for process in served.jobs(JOB)
        for file in process.open_files()
        if file.path.endswith(LOG) and "/pretraining/" in file.path
    }


def training(served, seed):
    """The process that trains with this seed, and its folder."""

    def find():
        for folder, process in list_trainings(served).items():
            if f'"seed": "{seed}"' in (folder / REQUEST).read_text():
                return process, folder
        return None

    return eventually(find)


def list_steps(folder):
    return [line["step"] for line in read_metrics(folder)]


def train_for(folder, steps):
    """Wait for so many more steps; return the last one."""
    begin = max(list_steps(folder), default=0)
    return eventually(lambda: (now := max(list_steps(folder), default=0)) >= begin + steps and now)


def wait_for_end(process):
    """Wait until a process is over, which would train for days."""

    def is_over():
        try:
            return process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    eventually(is_over)


def test_two_runs_queue_and_a_cancelled_one_makes_room(served):
    first = train(served, 1)
    job, folder = training(served, 1)
    second = train(served, 2)
    eventually(lambda: "the accelerator" in served.told(second))
    train_for(folder, 10)
    assert list(list_trainings(served)) == [folder]

    served.cancel(first)
    wait_for_end(job)
    served.wait(first, "Cancelled")
    assert folder not in list_trainings(served)

    job, other = training(served, 2)
    train_for(other, 5)
    served.cancel(second)
    wait_for_end(job)
    served.wait(second, "Cancelled")

    kept = max(int(path.name.split("-")[1]) for path in folder.glob("checkpoints/step-*"))
    third = train(served, 1)
    job, again = training(served, 1)
    assert again == folder
    assert train_for(folder, 5) > kept
    steps = list_steps(folder)
    assert steps == list(range(1, max(steps) + 1)), "the next run goes on where it was stopped"
    served.cancel(third)
    wait_for_end(job)


def test_kill_9_of_a_flow_leaves_nothing(served):
    run = train(served, 3)
    job, folder = training(served, 3)
    train_for(folder, 10)
    job.parent().kill()
    wait_for_end(job)
    served.wait(run, "Crashed")
    again = train(served, 3)
    job, _ = training(served, 3)
    train_for(folder, 5)
    served.cancel(again)
    wait_for_end(job)
