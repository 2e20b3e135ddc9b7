"""The frame of every job's command line: one JSON line on stdout, and the exit codes.

0 done, 1 failed, 2 the user's mistake, 75 (EX_TEMPFAIL) failed by what may pass, so that trying again makes sense.

`model/command.py` is its twin: neither package may import the other.
"""

import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn


class UserMistake(ValueError):
    """Something only the user can put right; the message names the file, line or option and says what to do."""


class JobFailed(RuntimeError):
    """The job could not go on, through no mistake of the user; the message says all there is to know."""


class MayPass(JobFailed):
    """A disk, a network or a worker failed."""


@contextmanager
def stdout_to_stderr() -> Iterator[int]:
    """Everything written to file descriptor 1, by us, by libraries or by child processes, goes to stderr.

    Yields a descriptor of the real stdout, for the result.
    """
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    try:
        yield real
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)
        os.close(real)


def main(run: Callable[[], dict[str, Any]]) -> NoReturn:
    """Runs a job and ends the process.

    `os._exit`, because a runner whose worker was killed leaves threads that never end and would keep the process.
    """
    if {"-h", "--help"} & set(sys.argv[1:]):
        run()
    signal.signal(signal.SIGTERM, _end)
    with stdout_to_stderr() as real_stdout:
        code = _exit_code(run, real_stdout)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _exit_code(run: Callable[[], dict[str, Any]], real_stdout: int) -> int:
    try:
        result = run()
    except UserMistake as mistake:
        print(f"error: {' '.join(str(mistake).split())}", file=sys.stderr)
        return 2
    except JobFailed as failure:
        print(f"error: {' '.join(str(failure).split())}", file=sys.stderr)
        return os.EX_TEMPFAIL if isinstance(failure, MayPass) else 1
    except (ConnectionError, TimeoutError) as error:
        traceback.print_exc()
        print(f"error: {error or type(error).__name__}", file=sys.stderr)
        return os.EX_TEMPFAIL
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except SystemExit as leaving:  # argparse: --help ends with 0, a wrong option with 2
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except Exception:
        traceback.print_exc()
        return 1
    os.write(real_stdout, (json.dumps(result, sort_keys=False) + "\n").encode())
    return 0


def _end(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)
