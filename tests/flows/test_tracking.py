"""What a job takes of the machine, what its log links to, and where a store may not be."""

import os
import subprocess
import sys
import time

from flows.runner import resource_sampler
from flows.runner.processes import start_child
from model.tracking.run_state import read_lines


def test_system_metrics_are_of_the_job_and_all_below_it(tmp_path, monkeypatch):
    """The job itself only waits: the seconds and the 50 MB are of the process that it started."""
    monkeypatch.setattr(resource_sampler, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(resource_sampler, "EVERY_SECONDS", 0.1)
    work = "held = b'x' * 50_000_000\nwhile True: pass"
    job = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])"
    samples = tmp_path / resource_sampler.SAMPLES_FILE

    def has_both(line):
        return line["system/cpu_percent"] > 0 and line["system/memory_megabytes"] > 60

    with (
        start_child([sys.executable, "-c", job], tmp_path / "log.txt") as child,
        resource_sampler.sample_resources(child.pid, samples),
    ):
        while len(lines := read_lines(samples)) < 2 or not any(map(has_both, lines)):
            time.sleep(0.1)
    assert [line["step"] for line in lines[:2]] == [1, 2]


def test_the_address_of_a_job_on_dataflow_is_found_in_what_beam_logs(tmp_path):
    address = "https://console.cloud.google.com/dataflow/jobs/us-central1/2026-01-01_00_00_00-123?project=p"
    said = f"INFO:root:To access the Dataflow monitoring console, please navigate to {address}"
    command = [sys.executable, "-c", f"import sys; print({said!r}, file=sys.stderr)"]
    with start_child(command, tmp_path / "log.txt") as child:
        assert list(child.follow_progress()) == [{"link": address}]


def test_a_store_in_a_bucket_is_refused_by_name(tmp_path):
    command = [
        sys.executable,
        "-m",
        "flows.cli.main",
        "run",
        "--dump",
        "sample:100",
        "--store",
        "gs://bucket/store",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: store: gs://bucket/store: results go to a local folder")
    assert os.listdir(tmp_path) == []
