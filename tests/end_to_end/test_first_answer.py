"""A run shows an answer as soon as an arm has one; Ctrl-C keeps the best so far as the model."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from amazon_electra.flows.cli import main
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.smoke]


def test_ctrl_c_after_the_first_line_leaves_a_model_that_score_loads(tmp_path, begin_store):
    begin_store(tmp_path / "store")
    write_sample(tmp_path / "sample.json.gz", 400, 0)
    words = ["run", "--dump", tmp_path / "sample.json.gz", "--recipe", "sample"]
    words += ["--store", tmp_path / "store", "--set", "pretraining.steps=1000000"]
    words += ["--set", "finetuning.tasks=polarity", "--set", "finetuning.arms=pre-trained,tfidf"]
    run = subprocess.Popen(
        [sys.executable, "-m", "amazon_electra.flows.cli.main", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr
    shown = []
    for line in run.stderr:
        shown.append(line)
        if "→ polarity: TF-IDF has" in line:
            run.send_signal(signal.SIGINT)
            break
    printed, rest = run.communicate(timeout=PATIENCE_SECONDS)
    told = "".join(shown) + rest
    assert run.returncode == 0, told
    assert "stopped" in told
    model = Path(re.search(r"^model +(\S+)$", printed, re.M)[1])
    assert json.loads((model / "results.json").read_text())["arm"] == "TF-IDF"
    report = Path(re.search(r"^report +(\S+)$", printed, re.M)[1])
    assert "TF-IDF" in report.read_text()
    scores = tmp_path / "scores"
    given = ["score", "--dump", tmp_path / "sample.json.gz", "--model", model, "--output", scores]
    with pytest.raises(SystemExit) as ended:
        main.main([str(word) for word in given])
    assert not ended.value.code
    [file] = scores.glob("*.parquet")
    labels = pq.read_table(file, columns=["label"])["label"]
    assert labels.null_count < 0.05 * len(labels)  # records without text
