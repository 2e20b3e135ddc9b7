"""Why a graph failed, of errors that come as text from another process or host."""

import errno

import pytest

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.engine.failures import describe_failure, translate_error

TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n'


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (
            "amazon_electra.beam_jobs.core.errors.UserError: d.json: no column [while running 'Cut']",  # noqa: E501
            UserError,
            "d.json: no column",
        ),
        (
            "amazon_electra.beam_jobs.core.errors.TransientError: d.gz cannot be read to its end: [Errno 5]",  # noqa: E501
            TransientError,
            "d.gz cannot be read to its end: [Errno 5]",
        ),
        (
            "botocore.exceptions.EndpointConnectionError: Could not connect",
            TransientError,
            "Could not connect; what is done is kept",
        ),
        ("ConnectionResetError: [Errno 104] reset", TransientError, "reset; what is done is kept"),
        (
            "gcsfs.retry.HttpError: Backend Error, 503 [while running 'Cut']",
            TransientError,
            "Backend Error, 503; ",
        ),
        (
            "requests.exceptions.ProxyError:  [while running 'Cut']",
            TransientError,
            "ProxyError: ",
        ),
        ("OSError: [Errno 28] No space left on device", JobFailed, "No space left on device: make"),
    ],
)
def test_what_a_worker_met_is_told_as_what_it_is(error, kind, message):
    found = translate_error(RuntimeError(f"{TRACEBACK}{error}\n"))
    assert type(found) is kind
    assert message in str(found)


def test_errors_of_this_process_are_told_too_and_others_are_left_alone():
    assert type(translate_error(OSError(errno.EFBIG, "File too large"))) is JobFailed
    assert str(translate_error(UserError("no [while running 'Cut']"))) == "no"
    assert translate_error(RuntimeError(f"{TRACEBACK}KeyError: 'stars'")) is None


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "java.lang.RuntimeException: Error received from SDK harness for instruction 3: "
            f"{TRACEBACK}amazon_electra.beam_jobs.core.errors.UserError: d.json: no column\n\n\tat org.apache.X",  # noqa: E501
            UserError,
            "d.json: no column",
        ),
        (
            f"java.lang.RuntimeException: Error: {TRACEBACK}KeyError: 'stars'\n\n\tat x.Y",
            JobFailed,
            "the engine's job failed: KeyError: 'stars'",
        ),
        (
            f"java.lang.RuntimeException: {TRACEBACK}"
            "ModuleNotFoundError: No module named 'amazon_electra.beam_jobs.engine'\n",
            UserError,
            "workers: No module named 'amazon_electra.beam_jobs.engine'; install there",
        ),
        (
            "org.apache.flink.runtime.JobException: Recovery is suppressed\n\tat x.Y\n"
            "Caused by: x.TimeoutException: Heartbeat of TaskManager with id 7 timed out.\n\t... 5",
            TransientError,
            "failed: Caused by: x.TimeoutException: Heartbeat of TaskManager with id 7 timed out.;",
        ),
        ("", TransientError, "the engine's job failed: it does not say why; what is done is kept"),
    ],
)
def test_why_a_job_failed_on_an_engine_is_one_line(text, kind, words):
    found = describe_failure(text)
    assert type(found) is kind
    assert words in str(found)
    assert "\n" not in str(found)
