"""The child processes of a study: each in a group of its own with a log, tried again once, none left at the end.

Nor is one left after a study that was killed: model/guard.py ends it, and the lock on its folder is held until then.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from model.command import UserMistake
from model.evaluation.study_tracking import VARIABLE
from model.guard import GRACE_SECONDS, guarded

ATTEMPTS = 2
"""Of each job: a cell that is killed for memory is tried once more."""


class JobFailed(RuntimeError):
    """A child process ended with an error; the message has its last lines."""


@dataclass
class Jobs:
    _children: set[subprocess.Popen] = field(default_factory=set, repr=False)
    stopping: bool = False

    def run(self, module: str, arguments: Sequence[str], folder: Path, threads: int | None, lock: int) -> None:
        """`python -m module arguments…`, its output in folder/log.txt; `threads` None: as many as it likes.

        `lock`: what `claimed` gave for the folder; the job holds it too.
        """
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
        for name in (VARIABLE, "AMAZON_ELECTRA_PROGRESS"):
            environment.pop(name, None)
        if threads is not None:
            environment |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        for attempt in range(1, ATTEMPTS + 1):
            code = self._ended([sys.executable, "-m", module, *arguments], folder / "log.txt", environment, lock)
            if code == 0:
                return
            if self.stopping:
                raise JobFailed("ended with the study")
            last = (folder / "log.txt").read_text(errors="replace").strip().splitlines()[-1:]
            message = last[0] if last else f"ended with {code}"
            if code == 2:
                raise UserMistake(f"{module}: {message.removeprefix('error: ')}")
            if attempt == ATTEMPTS:
                raise JobFailed(f"{module} ended with {code}: {message}; see {folder / 'log.txt'}")

    def _ended(self, command: Sequence[str], log: Path, environment: dict[str, str], lock: int) -> int:
        """The exit code."""
        if self.stopping:
            raise JobFailed("not started: the study is being ended")
        with log.open("ab") as file:
            child = subprocess.Popen(
                guarded(command, GRACE_SECONDS),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
                pass_fds=[lock],
            )
        self._children.add(child)
        try:
            if self.stopping:  # only while it was being started: `stop` did not see it
                _let_go(child)
            return child.wait()
        finally:
            self._children.discard(child)
            _let_go(child)

    def stop(self) -> None:
        """Nothing is left running when the study is ended."""
        self.stopping = True
        for child in list(self._children):
            _let_go(child)


def _let_go(child: subprocess.Popen) -> None:
    """The guard ends the job when it reads the end of the pipe."""
    assert child.stdin is not None
    child.stdin.close()


@contextmanager
def claimed(folder: Path) -> Iterator[int]:
    """For one process at a time: studies that keep their cells in one place share them.

    Gives the descriptor of the lock, which lasts until this process and the job it is handed to are over.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{folder.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()
