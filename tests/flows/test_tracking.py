"""What a job's log links to, and where a store may not be."""

import os
import re
import subprocess
import sys

from beam_jobs.core.hosts import OTHER_ROUTE
from flows.runner.processes import start_child


def test_the_address_of_a_job_on_an_engine_is_what_our_jobs_report(tmp_path):
    address = "http://jobmanager:8081/#/job/running/1f/overview"
    code = f"from beam_jobs.core.progress import announce_job; announce_job({address!r})"
    assert list_links(code, tmp_path) == [{"link": address}]


def list_links(code, folder):
    with start_child([sys.executable, "-c", code], folder / "log.txt") as child:
        return list(child.follow_progress())


def test_a_store_that_cannot_be_reached_is_told_at_once_in_one_line(tmp_path):
    command = [
        *[sys.executable, "-m", "flows.cli.main", "run", "--dump", "sample:100"],
        *["--store", "gs://no-such-bucket-of-ours/store"],
    ]
    known = {name: text for name, text in os.environ.items() if not re.search(OTHER_ROUTE, name)}
    known["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=known)
    assert done.returncode != 0
    [line] = done.stderr.splitlines()
    assert "--store gs://no-such-bucket-of-ours" in line
