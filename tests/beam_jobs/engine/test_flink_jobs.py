"""Jobs of Flink by its REST API: found by name, cancelled, and the newest of one output folder goes
on alone.
"""

import re
import threading

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from beam_jobs.engine import flink_jobs, worker_starts
from tests.beam_jobs.engine.rest import serve_flink


def test_a_job_is_cancelled_on_flink_itself_once_it_appears_there():
    with serve_flink(slots=2, jobs=["beam-jobs-1", "beam-jobs-2"]) as flink:
        options = PipelineOptions(["--flink_master", flink.address, "--job_name=beam-jobs-2"])
        flink_jobs.cancel_flink_job(options, 10)
        assert flink.asked[-1] == "PATCH /jobs/2?mode=cancel"
        options = PipelineOptions(["--flink_master", flink.address, "--job_name=another"])
        flink_jobs.cancel_flink_job(options, 0)
        assert flink.asked[-1] == "GET /jobs/overview"
    flink_jobs.cancel_flink_job(options, 0)  # Flink is away
    flink_jobs.cancel_flink_job(PipelineOptions([]), 10)  # nobody said where it is


def read_name(output, *flags):
    options = PipelineOptions(list(flags))
    flink_jobs.name_job(options, output)
    return options.view_as(GoogleCloudOptions).job_name


def test_a_job_is_named_after_its_output_folder():
    first, again, other = (read_name(o) for o in ("s3://b/corpus", "s3://b/corpus/", "s3://b/c"))
    assert first != again
    assert first.rpartition("-")[0] == again.rpartition("-")[0] != other.rpartition("-")[0]
    assert re.fullmatch(r"beam-jobs-[0-9a-f]{12}-[0-9a-f]{8}", first)
    assert read_name("s3://b/corpus", "--job_name=nightly") == "nightly"


def test_older_jobs_of_the_same_folder_are_cancelled_and_no_others():
    names = [read_name("out"), read_name("elsewhere"), read_name("out"), read_name("out"), "mine"]
    with serve_flink(slots=2, jobs=names, over={"3"}) as flink:
        address = f"http://{flink.address}"
        assert flink_jobs.cancel_older_jobs(address, "4") == ["1"]  # 3 is over
        assert [word for word in flink.asked if "PATCH" in word] == ["PATCH /jobs/1?mode=cancel"]
        assert flink_jobs.cancel_older_jobs(address, "1") == []
        assert flink_jobs.cancel_older_jobs(address, "5") == []  # a user's name
        assert flink_jobs.cancel_older_jobs(address, "6") == []  # Flink does not know it
    assert flink_jobs.cancel_older_jobs(address, "4") == []  # Flink is away


def test_a_job_that_is_followed_cancels_the_one_before_it(capsys):
    names, ended = [read_name("out"), read_name("out")], threading.Event()
    ended.set()
    with serve_flink(slots=2, jobs=names) as flink:
        flags = [f"--flink_master={flink.address}", f"--job_name={names[1]}"]
        worker_starts.follow_flink_job(PipelineOptions(flags), ended, lambda error: None)
        assert "PATCH /jobs/1?mode=cancel" in flink.asked
    assert "cancelled Flink's job 1, of a command that is gone" in capsys.readouterr().err
