"""The bench of scoring runs on a few reviews; without the other tools it measures ours alone."""

import json
import subprocess
import sys
from pathlib import Path

from model.finetune import run
from tests.bench.peers.labelled_reviews import write_splits
from tests.bench.peers.test_finetuning_peers import write_dump
from tests.model.corpora import write_bert

BENCH = Path(__file__).with_name("scoring.py")


def test_ours_is_measured_without_the_other_tools(tmp_path):
    dump = str(tmp_path / "dump.json.gz")
    write_dump(Path(dump), 200)
    write_bert(tmp_path / "bert")
    write_splits([dump], tmp_path / "data", 16)
    words = ["--encoder", str(tmp_path / "bert"), "--task", "table:text=text,label=label"]
    words += ["--data", str(tmp_path / "data"), "--output", str(tmp_path / "model")]
    run([*words, "--set", "epochs=1", "--set", "max_length=32", "--set", "pooling=cls"])
    command = [sys.executable, str(BENCH), "--input", dump, "--model", str(tmp_path / "model")]
    command += ["--reviews", "32", "--forms", "fp32", "--peers", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    [row] = json.loads(done.stdout)
    assert (row["side"], row["form"], row["labels_changed"], row["reviews"]) == (
        "ours",
        "fp32",
        0,
        32,
    )
    assert row["reviews_per_cpu_second"] > 0
