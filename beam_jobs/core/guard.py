"""Guards a job so that it does not outlive the flow that started it, not even after `kill -9`.

Started as `python -I -S guard.py GRACE_SECONDS COMMAND…` in a session of its own. Standard input
is a pipe whose other end only the one who starts it holds: when it closes, however that came about,
the whole process group gets SIGTERM, and SIGKILL after the grace in which a trainer may write its
checkpoint. Uses the standard library alone, to start in milliseconds.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

GRACE_SECONDS = 15.0
"""A trainer's time to write its checkpoint; Prefect kills a cancelled flow 30 s after its SIGTERM.
"""


def guard_command(command: Sequence[str], grace: float) -> list[str]:
    """Return the command line that starts a job under guard; `grace` in seconds."""
    return [sys.executable, "-I", "-S", __file__, str(grace), *command]


def end_group_at_hangup(grace: float) -> None:
    """Wait until nobody holds the pipe's other end, then end all processes of the group."""
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(grace)
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """Return the job's exit code, as a shell does: 128 + n for a job ended by signal n."""
    grace, command = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    pid = os.posix_spawnp(
        command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", 0, 0)]
    )
    # only now: SIGTERM to the group must find the job in it
    threading.Thread(target=end_group_at_hangup, args=(grace,), daemon=True).start()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
