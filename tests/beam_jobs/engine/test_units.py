"""A unit that fails is tried again, then told of at the end; the others are done all the same."""

import json

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.engine import units
from tests.refusals import refuses


def fail_times(times, error):
    tried = []

    def work():
        tried.append(error)
        if len(tried) <= times:
            raise error
        return "done"

    return work, tried


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(units, "PAUSE_SECONDS", 0)


@pytest.mark.parametrize(
    ("error", "kind"), [(KeyError("x"), JobFailed), (TransientError("x away"), TransientError)]
)
def test_what_fails_four_times_is_written_down_and_ends_the_job_later(tmp_path, error, kind):
    work, tried = fail_times(9, error)
    assert list(units.attempt(work, "0000000-00001", "d.json", str(tmp_path))) == []
    assert len(tried) == 4
    told = json.loads((tmp_path / "0000000-00001.json").read_text())
    assert "in work" in told["traceback"]
    with refuses("d.json", kind=JobFailed) as end:
        units.check_failed(str(tmp_path))
    assert type(end.value) is kind
    list(units.attempt(fail_times(0, error)[0], "0000000-00001", "d.json", str(tmp_path)))
    units.check_failed(str(tmp_path))  # an engine that began again has done it


def test_a_mistake_of_the_user_and_the_eleventh_failure_end_the_job_at_once(tmp_path):
    work, tried = fail_times(1, UserError("d.json: no column"))
    with pytest.raises(UserError):
        list(units.attempt(work, "0000000-00001", "d.json", str(tmp_path)))
    assert len(tried) == 1
    for number in range(10):
        list(units.attempt(fail_times(9, KeyError("x"))[0], f"{number}", "d.json", str(tmp_path)))
    with pytest.raises(KeyError):
        list(units.attempt(fail_times(9, KeyError("x"))[0], "10", "d.json", str(tmp_path)))
