"""The bench of fine-tuning runs on a few reviews; without the Trainer it measures ours alone."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.bench.peers.labelled_reviews import write_splits
from tests.model.corpora import write_bert

BENCH = Path(__file__).with_name("finetuning.py")


def write_dump(path: Path, reviews: int) -> None:
    words = {1: "awful", 2: "poor", 3: "so so", 4: "good", 5: "splendid"}
    records = [
        {"reviewText": f"Lamp {i} is {words[i % 5 + 1]}.", "overall": float(i % 5 + 1)}
        for i in range(reviews)
    ]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))


def test_splits_are_balanced_and_share_no_review(tmp_path):
    write_dump(tmp_path / "dump.json.gz", 300)
    labels = write_splits([str(tmp_path / "dump.json.gz")], tmp_path / "data", 40)
    rows = {
        split: [json.loads(x) for x in (tmp_path / "data" / f"{split}.jsonl").open()]
        for split in ("train", "dev", "test")
    }
    assert {split: len(found) for split, found in rows.items()} == {
        "train": 40,
        "dev": 4,
        "test": 40,
    }
    assert np.bincount(labels).tolist() == [20, 20]
    assert [int(row["label"]) for row in rows["test"]] == labels.tolist()
    texts = [row["text"] for found in rows.values() for row in found]
    assert len(set(texts)) == len(texts)
    assert not any("so so" in text for text in texts)


def test_ours_is_measured_without_the_trainer(tmp_path):
    write_dump(tmp_path / "dump.json.gz", 200)
    write_bert(tmp_path / "bert")
    command = [sys.executable, str(BENCH), "--input", str(tmp_path / "dump.json.gz"), "--json"]
    command += ["--encoder", str(tmp_path / "bert"), "--reviews", "32", "--without_trainer"]
    done = subprocess.run([*command, "--precisions", "fp32"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    [row] = json.loads(done.stdout)
    assert (row["side"], row["p"]) == ("ours", 1.0)
    assert row["examples_per_cpu_second"] > 0
