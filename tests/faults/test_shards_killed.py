"""A worker of the shards job killed in the middle: an error within seconds, and the next run
continues.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time

import psutil

from tests.beam_jobs.test_shards_job import digests, job, vocabulary  # noqa: F401
from tests.corpus_folder import write_corpus
from tests.faults.test_corpus_job import is_at_work
from tests.patience import eventually


def test_a_killed_worker_ends_the_job_and_the_next_run_continues(tmp_path, vocabulary):  # noqa: F811
    draw = random.Random(0)
    words = ["the", "mixer", "works", "great", "broke", "after", "week."]
    reviews = [[" ".join(draw.choices(words, k=20)) for _ in range(5)] for _ in range(8000)]
    corpus = write_corpus(tmp_path / "corpus", reviews * 8, files=16)
    output = tmp_path / "killed"
    folders = [
        "--corpus",
        str(corpus),
        "--vocabulary",
        str(vocabulary),
        "--output",
        str(output),
        "--max_length",
        "64",
    ]
    mode = ["--direct_running_mode", "multi_processing", "--direct_num_workers", "2"]
    command = [sys.executable, "-m", "beam_jobs.shards_job", *folders, *mode]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(output.glob("shard-*")):
        assert killed.poll() is None
        time.sleep(0.02)
    workers = psutil.Process(killed.pid).children(recursive=True)
    os.kill(workers[0].pid, signal.SIGKILL)
    _, errors = killed.communicate()
    assert killed.returncode == os.EX_TEMPFAIL, errors
    eventually(lambda: not any(map(is_at_work, workers)), seconds=60)

    done = digests(output)
    assert 0 < len(done) < 16
    continued = subprocess.run(command, capture_output=True, text=True)
    assert json.loads(continued.stdout)["documents"] == 64_000
    job(corpus, vocabulary, tmp_path / "undisturbed")
    assert digests(output) == digests(tmp_path / "undisturbed")
    assert done.items() <= digests(output).items()
    assert not list(output.glob(".*"))
