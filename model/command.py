"""How a job is started from the command line: one JSON line on stdout, everything else on stderr.

Twin of beam_jobs/command.py: neither package may import the other, and both keep the same promise to whoever starts
them. Exit codes: 0 done, 1 failed (traceback), 2 the user's mistake (one line saying what to do), 75 (EX_TEMPFAIL)
failed by a connection, so that trying again makes sense.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any


class UserMistake(ValueError):
    """Something only the user can put right; the message names the file, line or field and what to do."""


def assigned(option: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """What an option that may be repeated gives, each time as NAME=VALUE; `form` is how the help writes that."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserMistake(f"{option} {text}: write {form}")
        values[name] = value
    return values


def main(run: Callable[[], dict[str, Any]]) -> None:
    """Runs a job with the arguments of this process and exits; `run()` reads sys.argv and returns the result.

    While it runs, file descriptor 1 points at stderr, so that what libraries and child processes print there cannot
    mix with the result.
    """
    if {"-h", "--help"} & set(sys.argv[1:]):
        run()
        return
    sys.stdout.flush()
    result_fd = os.dup(1)
    os.dup2(2, 1)
    code, result = _attempt(run)
    sys.stdout.flush()
    sys.stderr.flush()
    if code == 0:
        with os.fdopen(result_fd, "w", encoding="utf-8") as stdout:
            stdout.write(json.dumps(result, ensure_ascii=False) + "\n")
    sys.exit(code)


def _attempt(run: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any] | None]:
    """The exit code and, where it is 0, the result."""
    try:
        return 0, run()
    except UserMistake as mistake:
        print(f"error: {' '.join(str(mistake).split())}", file=sys.stderr)
        return 2, None
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130, None
    except (ConnectionError, TimeoutError) as error:
        traceback.print_exc()
        print(f"error: {error or type(error).__name__}", file=sys.stderr)
        return os.EX_TEMPFAIL, None
    except Exception:
        traceback.print_exc()
        return 1, None
