"""Two people type the same `run` at once, on a store that nobody has made yet."""

import re
import subprocess
import sys

import pytest

from amazon_electra.flows.store.store import Store
from tests.patience import PATIENCE_SECONDS
from tests.served import CLEAN

SETTINGS = (
    "finetuning.arms=tfidf",
    "finetuning.tasks=polarity",
    "finetuning.seeds=0",
    "pretraining.steps=2",
)


@pytest.mark.slow
def test_two_runs_at_once_on_a_new_store_both_come_to_their_end(tmp_path):
    words = [sys.executable, "-m", "amazon_electra.flows.cli.main", "run", "--dump", "sample:300"]
    words += ["--recipe", "sample", "--store", str(tmp_path / "store")]
    words += [f"--{setting}" for setting in SETTINGS]
    runs = [
        subprocess.Popen(
            words, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [run.communicate(timeout=2 * PATIENCE_SECONDS) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    models = {re.search(r"^model +(\S+)$", printed, re.M)[1] for printed, _ in said}
    assert len(models) == 1, "equal runs share their stages"
    made = Store(tmp_path / "store").list_manifests()
    assert sum("→" in line for _, told in said for line in told.splitlines()) >= 2
    assert len(made) == len({manifest["fingerprint"] for manifest in made})
