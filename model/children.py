"""Processes that end with the one that started them: `python -I -S children.py PARENT COMMAND…` has
Linux send it SIGTERM at the end of the thread that started it, then becomes the command.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

GRACE_SECONDS = 20.0
"""Time of a trainer to write its checkpoint; Prefect kills a cancelled flow 30 s after SIGTERM."""
PR_SET_PDEATHSIG = 1


def bind_command(command: Sequence[str]) -> list[str]:
    """Return the command line that starts a command which ends with this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):  # it is over already
        os._exit(128 + signal.SIGTERM)
    os.execvp(sys.argv[2], sys.argv[2:])
