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


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ("UserError('--size: 3 is too\\nsmall')", 2, "error: --size: 3 is too small\n"),
        ("RuntimeError('broken')", 1, "RuntimeError: broken\n"),
        ("ConnectionResetError(104, 'reset')", 75, "error: [Errno 104] reset\n"),
        ("TimeoutError('too slow')", 75, "error: too slow\n"),
        # as botocore's
        ("type('EndpointConnectionError', (Exception,), {})('no S3')", 75, "error: no S3\n"),
    ],
)
def test_an_error_has_its_code_and_its_line(error, code, said):
    done = start(f"    raise {error}")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.endswith(said)
    assert ("Traceback" in done.stderr) == (code != 2)
