"""The promise to whoever starts a job: one JSON line on stdout, exit codes 0, 1, 2, 75."""

import json
import subprocess
import sys

import pytest


def start(body: str) -> subprocess.CompletedProcess[str]:
    program = (
        "import os, subprocess, sys\n"
        "from amazon_electra.beam_jobs.core.command import main\n"
        "from amazon_electra.beam_jobs.core.errors import UserError\n"
        f"def run():\n{body}\nmain(run)"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


def test_only_the_result_is_on_stdout():
    done = start(
        "    print('chatter')\n    os.write(1, b'native')\n"
        "    subprocess.run(['echo', 'child'])\n    return {'n': 1}"
    )
    assert (done.returncode, json.loads(done.stdout)) == (0, {"n": 1})
    assert done.stdout.count("\n") == 1
    assert all(word in done.stderr for word in ("chatter", "native", "child"))


def test_a_mistake_of_the_user_is_one_line():
    done = start("    raise UserError('--size: 3 is too\\nsmall')")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --size: 3 is too small\n"


def test_a_failure_has_a_traceback():
    done = start("    raise RuntimeError('broken')")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" in done.stderr
    assert "RuntimeError: broken" in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        "ConnectionResetError(104, 'reset')",
        "TimeoutError('too slow')",
        "type('EndpointConnectionError', (Exception,), {})('no S3 server')",  # as botocore's
    ],
)
def test_what_another_attempt_may_mend_has_a_code_of_its_own(error):
    done = start(f"    raise {error}")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.splitlines()[-1].startswith("error: ")
