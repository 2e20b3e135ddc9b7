"""Why a graph failed, of errors that come as text from another process or host."""

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.engine.failures import describe_failure, translate_error

OURS = "amazon_electra.beam_jobs.core.errors"
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'


@pytest.mark.parametrize(
    ("error", "kind", "named"),
    [
        (f"{OURS}.UserError: d.json: no column [while running 'Cut']", UserError, "d.json"),
        (f"{OURS}.TransientError: d.gz cannot be read: [Errno 5]", TransientError, "d.gz"),
    ],
)
def test_what_a_worker_met_is_told_as_what_it_is(error, kind, named):
    found = translate_error(RuntimeError(f"{TRACEBACK}{error}\n"))
    assert type(found) is kind
    assert named in str(found)
    assert "while running" not in str(found)


def test_errors_of_this_process_are_told_too_and_others_are_left_alone():
    assert str(translate_error(UserError("no [while running 'Cut']"))) == "no"
    assert translate_error(RuntimeError(f"{TRACEBACK}KeyError: 'stars'")) is None


@pytest.mark.parametrize(
    ("text", "kind", "named"),
    [
        (
            "java.lang.RuntimeException: Error received from SDK harness for instruction 3: "
            f"{TRACEBACK}{OURS}.UserError: d.json: no column\n\n\tat org.apache.X",
            UserError,
            "d.json",
        ),
        (
            f"java.lang.RuntimeException: Error: {TRACEBACK}KeyError: 'stars'\n\n\tat x.Y",
            JobFailed,
            "KeyError: 'stars'",
        ),
        (
            "org.apache.flink.runtime.JobException: Recovery is suppressed\n\tat x.Y\n"
            "Caused by: x.TimeoutException: Heartbeat of TaskManager with id 7 timed out.\n\t... 5",
            TransientError,
            "x.TimeoutException: Heartbeat of TaskManager with id 7 timed out.",
        ),
        ("", TransientError, "engine"),
    ],
)
def test_why_a_job_failed_on_an_engine_is_one_line(text, kind, named):
    found = describe_failure(text)
    assert type(found) is kind
    assert named in str(found)
    assert "\n" not in str(found)
