"""The bench runs on a small dump of any format and gives the figures it promises."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = {"ratio_plain", "reviews_per_cpu_second"}
LARGE = {"beam_overhead", "two_worker_speedup", "one_gz_ratio", "scale_time_ratio", "peak_rss_mb"}


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("parts", "keys"),
    [
        (["plain", "steps"], PLAIN),
        (["large"], LARGE),
    ],
)
def test_every_figure_is_there(tmp_path, parts, keys):
    with open(tmp_path / "dump.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "stars", "item_id"])
        rows.writerows(
            [f"The mixer number {i} works. It is great, I like it a lot!", 1 + i % 5, i]
            for i in range(300)
        )
    bench = Path(__file__).with_name("data_path.py")
    command = [
        sys.executable,
        str(bench),
        "--input",
        str(tmp_path / "dump.csv"),
        "--rounds",
        "1",
        "--json",
    ]
    command += ["--only", *parts]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert set(results) >= keys
    assert results["reviews"] == 300
    assert all(results[key] > 0 for key in keys - {"beam_overhead"})
