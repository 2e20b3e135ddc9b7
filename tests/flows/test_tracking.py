"""What a job's log links to."""

import sys

from flows.runner.processes import start_child


def test_the_address_of_a_job_on_an_engine_is_what_our_jobs_report(tmp_path):
    address = "http://jobmanager:8081/#/job/running/1f/overview"
    code = f"from beam_jobs.core.progress import announce_job; announce_job({address!r})"
    assert list_links(code, tmp_path) == [{"link": address}]


def list_links(code, folder):
    with start_child([sys.executable, "-c", code], folder / "log.txt") as child:
        return list(child.follow_progress())
