"""The frame of every job's command line: one JSON line on stdout, and the exit codes.

0 done, 1 failed, 2 the user's mistake (one line that says what to do), 75 (EX_TEMPFAIL of
sysexits.h) failed by what another attempt may mend, 130 interrupted, 143 ended by SIGTERM.
"""

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from amazon_electra.beam_jobs.core.errors import (
    DISK_FULL,
    JobFailed,
    TransientError,
    UserError,
    describe_error,
    is_network_error,
)
from amazon_electra.beam_jobs.core.terminal import escape_controls, print

USER_ERROR = 2
TRIM_THRESHOLD, MMAP_MAX = -1, -4  # parameters of mallopt (glibc's malloc.h)


def main(run: Callable[[], dict[str, Any]]) -> NoReturn:
    """Run a job, print its result, end by `os._exit`: a killed worker's threads never end. What
    else goes to file descriptor 1 is sent to stderr.
    """
    if {"-h", "--help"} & set(sys.argv[1:]):
        run()
    signal.signal(signal.SIGTERM, exit_at_signal)
    real_stdout = os.dup(1)
    os.dup2(2, 1)
    code = run_to_exit_code(run, real_stdout)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_to_exit_code(run: Callable[[], dict[str, Any]], real_stdout: int) -> int:
    """Write what `run` returns to the descriptor, or its error to stderr; return the exit code."""
    try:
        result = run()
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except Exception as error:
        is_told = isinstance(error, UserError | JobFailed)
        may_pass = isinstance(error, TransientError) if is_told else is_network_error(error)
        if not is_told and not (isinstance(error, OSError) and error.errno in DISK_FULL):
            print(traceback.format_exc().rstrip(), file=sys.stderr)
        if is_told or may_pass or isinstance(error, OSError):
            print(f"error: {describe_error(error)}", file=sys.stderr)
        return USER_ERROR if isinstance(error, UserError) else os.EX_TEMPFAIL if may_pass else 1
    os.write(real_stdout, (escape_controls(json.dumps(result, ensure_ascii=False)) + "\n").encode())
    return 0


def exit_at_signal(signum: int, frame: FrameType | None) -> None:
    """Leave by SystemExit, so that what is open is closed: a handler of `signal.signal`."""
    raise SystemExit(128 + signum)


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next step, a sixth of the time of a fine-tuning step."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(MMAP_MAX, 0)
        library.mallopt(TRIM_THRESHOLD, 2**31 - 1)


def give_memory_back() -> None:
    """Have glibc give the system what the heaps hold free, between large pieces of work."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
