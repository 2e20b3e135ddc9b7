"""Child processes, each in a session of its own. None outlives the process that started it
(beam_jobs/core/children.py).
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from typing import IO, Any, NoReturn

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.model.children import GRACE_SECONDS, bind_command

POLL_SECONDS = 1.0  # between two looks into the log of a job for its progress
PYTHON_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
"""Children write at once, and run no code of the folder in which the user happens to stand."""
TRANSIENT_SIGNALS = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP}
"""Memory that ran out, a machine that was taken away; others are a bug."""


class Terminated(KeyboardInterrupt):
    """A SIGTERM: the run ends at once, where after Ctrl-C it keeps the best so far."""


def interrupt_on_signals(*signals: int) -> None:
    """Raise KeyboardInterrupt for Ctrl-C, in the background too, Terminated for these signals."""

    def raise_terminated(number: int, _: Any) -> None:
        raise Terminated

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signals:
        signal.signal(number, raise_terminated)


class Child(subprocess.Popen[bytes]):
    """A process in a session of its own, and whatever it starts."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        has_pipes: bool = False,
    ):
        """Start the command; its output is appended to `log`, or with `has_pipes` only stderr."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self.environment = log, dict(environment or {})
        with open(log, "ab") as file:
            self.log_start = file.tell()
            super().__init__(
                bind_command(command),
                bufsize=0,
                stdin=subprocess.PIPE if has_pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if has_pipes else file,
                stderr=file,
                env=os.environ | PYTHON_ENVIRONMENT | self.environment,
                start_new_session=True,
            )

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it is over; what it has left in its session is ended."""
        code = super().wait(timeout)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        return code

    def end(self, grace: float | None = None) -> None:
        """Send SIGTERM, SIGKILL to the session after the grace; return when it is over."""
        self.terminate()
        try:
            self.wait(GRACE_SECONDS + 1 if grace is None else grace)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()

    def find_cause(self) -> str:
        """Return why a process that is over ended otherwise than well."""
        return find_cause(self.returncode, self.log, self.log_start)


def end_children(children: Sequence[Child]) -> None:
    """End children, with one grace for all of them."""
    deadline = time.monotonic() + GRACE_SECONDS + 1
    for child in children:
        child.terminate()
    for child in children:
        child.end(max(0.0, deadline - time.monotonic()))


def read_event(child: Child) -> dict[str, Any]:
    """Return what a process says next (run_stage.py), or `nothing` after POLL_SECONDS."""
    assert child.stdout is not None
    if not select([child.stdout], [], [], POLL_SECONDS)[0]:
        return {"is": "nothing"}
    line = child.stdout.readline()
    return dict(json.loads(line)) if line else {"is": "failed", "code": child.wait()}


def read_reports(log: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """Yield what a job has reported in its log since the last call, as events of listeners."""
    while (line := log.readline()).endswith(b"\n"):
        if line.startswith(b"PROGRESS "):
            with suppress(ValueError):
                yield "on_progress", json.loads(line.removeprefix(b"PROGRESS "))
        elif line.startswith(b"JOB "):  # beam_jobs.core.progress.announce_job
            yield "on_line", line.decode().removeprefix("JOB ").strip()
    log.seek(-len(line), os.SEEK_CUR)


def raise_failure(name: str, event: Mapping[str, Any], log: Path, start: int) -> NoReturn:
    """Raise the error of a stage that failed: a TransientError where another attempt may pass."""
    if "mistake" in event:
        raise UserError(**event["mistake"])
    code = event["code"] or os.EX_TEMPFAIL
    cause = event.get("error") or find_cause(code, log, start)
    if code == os.EX_TEMPFAIL or read_signal(code) in TRANSIENT_SIGNALS:
        again = "a second attempt may pass"
        raise TransientError(f"{name} failed: {cause} (exit code {code}; {again}; log: {log})")
    again = "the same command continues at this stage once the cause is fixed"
    raise JobFailed(f"{name} failed: {cause} (exit code {code}; {again}; log: {log})")


def find_cause(code: int, log: Path, start: int) -> str:
    """Return why a process ended with this code: a signal, or the last error or line of its log."""
    if ending := read_signal(code):
        return f"ended by {ending.name}"
    with open(log, "rb") as file:
        file.seek(max(start, file.seek(0, os.SEEK_END) - 16_384))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    spoken = [line for line in lines if line and not line.startswith("PROGRESS ")]
    errors = [line for line in spoken if line.startswith("error: ")]
    return (errors or spoken or ["no output"])[-1]


def read_signal(code: int) -> signal.Signals | None:
    """Return the signal that ended a process with this exit code, or None."""
    number = -code if code < 0 else code - 128
    return signal.Signals(number) if number in set(signal.Signals) else None
