"""Every bench runs to its end on a small input and prints the figures it promises.

That of Flink: tests/flink/test_bench.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.corpora import write_bert

BENCHES = Path(__file__).parent
ROOT = BENCHES.parents[1]
REVIEWS = 400  # with 200, a split of the sample may hold no review of one class


def run(*words: object) -> str:
    """Run a Python module or script from the root; return what it prints on stdout."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def figures(bench: str, *words: object) -> dict:
    """Return what a bench prints with --json; all its numbers are real ones."""
    found = json.loads(run(BENCHES / bench, *words, "--json").splitlines()[-1])
    numbers = [value for value in found.values() if isinstance(value, int | float)]
    assert all(number == number for number in numbers)
    return found


@pytest.fixture(scope="module")
def dump(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "dump.json.gz"
    run("-m", "amazon_electra.beam_jobs.sample.sample_dump", "--reviews", REVIEWS, "--output", path)
    return path


def test_data_path(dump):
    found = figures("data_path.py", "--input", dump, "--reviews", 300, "--rounds", 1)
    assert found["reviews"] == 300
    assert found.keys() >= {"ratio_plain", "reviews_per_cpu_second", "large_reviews_per_cpu_second"}
    assert found.keys() >= {"two_worker_speedup", "peak_rss_mb"}
    assert all(number > 0 for number in found.values())


@pytest.mark.smoke
def test_pretraining_step():
    words = ["--recipe", "sample", "--batch", 4, "--rounds", 1]
    assert figures("pretrain_step.py", *words)["ratio_positions"] > 0


@pytest.mark.slow
def test_every_row_of_a_gpu_is_measured_at_toy_size_without_one(tmp_path):
    output = tmp_path / "gpu.json"
    run(BENCHES / "gpu.py", "--output", output)
    rows = json.loads(output.read_text())["rows"]
    assert not [row for row in rows.values() if "error" in row]
    assert rows["losses"]["largest_difference"] < 1e-3
    assert rows["losses"]["resumed_tensors_that_differ"][0] == 0
    assert all(rows[name]["times_plain"] > 0 for name in ("small", "amazon-base", "base-512"))
    late = tmp_path / "late.json"
    run(BENCHES / "gpu.py", "--output", late, "--seconds", 0, "--rows", "small")
    assert json.loads(late.read_text())["rows"] == {"small": {"error": "no time left"}}


def test_wrong_labels_are_judged(dump, tmp_path):
    words = ["--reviews", dump, "--work", tmp_path, "--output", tmp_path / "labels.json"]
    words += ["--arms", "tfidf", "--counts", 60, "--samples", 1, "--flipped", 0.2]
    row = json.loads(run(BENCHES / "labels.py", *words).splitlines()[-1])
    assert row["labels"] == 60
    assert 0.1 < row["found"]["wrong"] / row["found"]["labels"] < 0.3


@pytest.mark.slow
def test_every_server_is_compared_with_score(tmp_path):
    write_bert(tmp_path / "bert")
    words = ["--work", tmp_path / "work", "--encoder", tmp_path / "bert"]
    words += ["--texts", 40, "--alone", 3, "--arms", "frozen", "finetuned"]
    lines = run(BENCHES / "servers.py", *words).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[4:]]
    servers = {(model, server) for model, server, *_ in rows}
    assert {("frozen", "ONNX Runtime"), ("fine-tuned", "transformers' pipeline")} <= servers
    exact = [row for row in rows if row[1] != "score, int8"]
    assert all(float(one) < 1e-5 for _, _, *differences, _ in exact for one in differences)


@pytest.mark.slow
def test_scoring_is_measured_beside_other_libraries(tmp_path):
    write_bert(tmp_path / "bert")
    words = ["--work", tmp_path / "work", "--encoder", tmp_path / "bert", "--labels", 60]
    lines = run(BENCHES / "scoring.py", *words, "--rows", 40, "--memory_rows", 400).splitlines()
    assert sum("`score`" in line or "`pipeline`" in line for line in lines) == 5
    assert json.loads(lines[-1])["rows_that_differ"] == 0


@pytest.mark.slow
def test_kills_change_no_bytes():
    words = ["--minutes", 0.1, "--kills", 2, "--stages", 2, "--pause", 2]
    row = run(BENCHES / "kills.py", *words).splitlines()[-1].split("|")
    assert row[4].strip() == "0"
