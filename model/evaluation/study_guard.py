"""Stands between a study and a job, so that no job outlives the study, not even one ended by `kill -9`.

Started as `python -I -S study_guard.py GRACE_SECONDS COMMAND…` in a session of its own. Standard input is a pipe whose
other end only the study holds: when it closes, however that came about, the whole process group gets SIGTERM, and
SIGKILL after the grace. What the study locks for the job is handed on to it, so that the lock lasts as long as the job.
Twin of flows/guard.py, which model may not import; the standard library alone, to start in milliseconds.
"""

import os
import signal
import sys
import threading
import time


def end_group_at_hangup(grace: float) -> None:
    """Waits for the study to let go of the pipe; then ends every process of the group, this one included."""
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(grace)
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    """The job's exit code, as a shell gives it: 128 + n for a job ended by signal n."""
    grace, command = float(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: None)
    threading.Thread(target=end_group_at_hangup, args=(grace,), daemon=True).start()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", 0, 0)])
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main())
