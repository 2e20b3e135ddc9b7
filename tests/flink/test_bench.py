"""The bench of the cluster runs to its end."""

import json
import subprocess
import sys

from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from tests.flink.cluster import NEEDED, ROOT

pytestmark = NEEDED


def test_it_prints_its_figures_as_json(tmp_path):
    write_sample(tmp_path / "dump.json.gz", 400, 0)
    command = [sys.executable, str(ROOT / "tests" / "bench" / "flink_cluster.py")]
    command += ["--dump", str(tmp_path / "*.gz"), "--cold"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    local, flink = json.loads(done.stdout.splitlines()[-1])
    assert flink["same_bytes"]
    assert local["peak_megabytes"]["job"] > 0
    assert flink["cpu_seconds_by_part"]["python_worker"] > 0
