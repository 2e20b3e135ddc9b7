"""A worker on another host that is not made of what the job was made with says so."""

import shutil

import pytest
from s3fs import S3FileSystem

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.engine import worker_check
from tests.s3_server import serve_s3


@pytest.mark.parametrize("part", ["python", "apache_beam", "beam_jobs"])
def test_workers_with_other_versions_are_told(part, tmp_path):
    """Before they give other bytes."""
    job = worker_check.read_versions() | {part: "2.62"}
    with worker_check.leave_probe(str(tmp_path)) as probe:
        worker_check.check_worker(worker_check.read_versions(), probe)
        with pytest.raises(UserError, match=rf"^[^\n]*{part}[^\n]*2\.62"):
            worker_check.check_worker(job, probe)
    with pytest.raises(UserError, match=str(tmp_path)):
        worker_check.check_worker(worker_check.read_versions(), probe)


def test_workers_that_may_not_read_the_store_say_so(tmp_path, monkeypatch):
    def become(user):
        S3FileSystem.clear_instance_cache()
        for name, value in s3.environment(user).items():
            monkeypatch.setenv(name, value)

    with serve_s3(tmp_path / "s3") as s3:
        become("owner")
        with worker_check.leave_probe("s3://store/out") as probe:
            become("nobody")
            with pytest.raises(UserError, match="s3://store/out"):
                worker_check.check_worker(worker_check.read_versions(), probe)
            become("owner")


def test_a_store_that_goes_away_does_not_hide_why_a_job_failed(tmp_path):
    store = tmp_path / "store"
    store.mkdir()

    def fail_without_store():
        with worker_check.leave_probe(str(store)):
            shutil.rmtree(store)
            store.touch()  # now the probe cannot be removed
            raise KeyError("the cause")

    with pytest.raises(KeyError):
        fail_without_store()
