"""Child processes, each in a session of its own: start, follow, end.

Stages are made in child processes (flows/run_stage.py), so that a crash of a trainer is an exit
code here, that its memory is returned, and that it can be ended. No child outlives the process that
started it (beam_jobs/core/children.py).
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any, NoReturn

from amazon_electra.beam_jobs.core.children import GRACE_SECONDS, bind_command
from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.flows.store.stage import Stage, write_request
from amazon_electra.flows.store.store import LOG, REQUEST, Store

POLL_SECONDS = 1.0
"""Between two looks into the log of a job for its progress."""
PYTHON_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
"""Children write at once, and run no code of the folder in which the user happens to stand."""
TRANSIENT_SIGNALS = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP}
"""Memory that ran out, a machine that was taken away; what ends by SIGSEGV or SIGABRT is a bug and
ends so again.
"""
RUN_STAGE = "amazon_electra.flows.run_stage"
JOBS_LOG = Path("logs", "jobs.log")
"""Of a store: what processes of jobs write before their stages begin."""

_living: set["Child"] = set()
_ending = threading.Event()
_starter = ThreadPoolExecutor(1, thread_name_prefix="children")
"""The thread that starts all children: they end with the thread that started them."""


class Terminated(KeyboardInterrupt):
    """A SIGTERM: the run ends at once, where after Ctrl-C it keeps the best so far."""


def interrupt_on_signals(*signals: int) -> None:
    """Raise KeyboardInterrupt for Ctrl-C, also in a process that a shell started in the background,
    and Terminated for these signals.
    """

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
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
    ):
        """Start the command; `environment` is added to this process's own. What it writes is
        appended to `log`, its stdout goes to a pipe if that is asked for.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self.environment = log, dict(environment or {})
        with open(log, "ab") as file:
            shown = " ".join(command)
            file.write(f"\n== {time.strftime('%Y-%m-%d %H:%M:%S')} {shown}\n".encode())
            file.flush()
            self.log_start = file.tell()
            super().__init__(
                bind_command(command),
                bufsize=0,
                stdin=stdin,
                stdout=file if stdout is None else stdout,
                stderr=file,
                env=os.environ | PYTHON_ENVIRONMENT | self.environment,
                start_new_session=True,
            )

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it is over; what it has left in its session is ended."""
        code = super().wait(timeout)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        _living.discard(self)
        return code

    def end(self, grace: float | None = None) -> None:
        """Send SIGTERM, and SIGKILL to all of the session after the grace in seconds; return when
        it is over.
        """
        self.terminate()
        try:
            self.wait(GRACE_SECONDS + 1 if grace is None else grace)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()

    def find_cause(self) -> str:
        """Return why a process that is over ended otherwise than well."""
        return find_cause(self.returncode, self.log, self.log_start)


def start_child(*arguments: Any, **options: Any) -> Child:
    """Start a child; InterruptedError where the run is ending."""
    refuse_when_ending()
    child = _starter.submit(Child, *arguments, **options).result()
    _living.add(child)
    if _ending.is_set():  # a signal while it was being started: it was not among the living
        child.end()
        refuse_when_ending()
    return child


def refuse_when_ending() -> None:
    """Raise InterruptedError after `end_children_on_error`, until jobs are allowed again."""
    if _ending.is_set():
        raise InterruptedError("the run is ending")


def allow_jobs() -> None:
    """Start jobs again: the run is over, or goes on after an error that was caught."""
    _ending.clear()


@contextmanager
def end_children_on_error() -> Iterator[None]:
    """When the block is left by an exception, end every child of this process, with one grace for
    all of them, and refuse new ones.

    A cancelled flow learns it in its main thread only; the threads that follow children find them
    ended. So code that waits for such threads waits inside this block.
    """
    try:
        yield
    except BaseException:
        _ending.set()
        end_children(list(_living))
        raise


def end_children(children: Sequence[Child]) -> None:
    """End children, with one grace for all of them."""
    deadline = time.monotonic() + GRACE_SECONDS + 1
    for child in children:
        child.terminate()
    for child in children:
        child.end(max(0.0, deadline - time.monotonic()))


class StageProcesses:
    """The child processes of a run that make its stages, each one stage after another. A process
    whose stage fails ends, so nothing of the failure is left for the next one.
    """

    def __init__(self, store: Store):
        self._store, self._lock = store, threading.Lock()
        self._idle: list[Child] = []
        self._begun: dict[str, Child] = {}

    def begin(self, stage: Stage) -> None:
        """Have a process make a stage that is followed later, though it may be complete by then."""
        self._begun[stage.path] = self._order(stage)

    def is_begun(self, stage: Stage) -> bool:
        return stage.path in self._begun

    def follow(self, stage: Stage) -> Iterator[dict[str, Any]]:
        """Yield what happens to a stage until it is complete: that another process is making it
        (`waits`), that it has `begun`, its `progress`; raise why it cannot be made.
        """
        child = self._begun.pop(stage.path, None) or self._order(stage)
        log, start, read = child.log, child.log_start, 0
        try:
            assert child.stdout is not None
            while True:
                event: dict[str, Any] = {"is": "progress"}
                if select([child.stdout], [], [], POLL_SECONDS)[0]:
                    line = child.stdout.readline()
                    event = json.loads(line) if line else {"is": "failed", "code": child.wait()}
                if event["is"] == "begun":
                    log, start, read = Path(event["log"]), event["start"], event["start"]
                if event["is"] in ("begun", "waits"):
                    yield event
                if read:
                    reports, read = read_progress(log, read)
                    yield from ({"is": "progress", "progress": report} for report in reports)
                if event["is"] == "made":
                    break
                if event["is"] == "failed":
                    refuse_when_ending()
                    if "mistake" in event:
                        raise UserError(**event["mistake"])
                    code = event["code"] or os.EX_TEMPFAIL
                    cause = event.get("error") or find_cause(code, log, start)
                    raise_failure(stage.label, code, cause, self._store.folder(stage) / LOG)
        except BaseException:
            child.end()
            raise
        if stage.resources.beside:  # it has yielded its cores, and may not take them back
            child.end()
            return
        with self._lock:
            self._idle.append(child)

    def end_idle(self) -> None:
        """End the processes that make nothing."""
        with self._lock:
            ended, self._idle = self._idle, []
        end_children(ended)

    def _order(self, stage: Stage) -> Child:
        """Have a process make a stage: an idle one of the same environment, or a new one."""
        folder = self._store.folder(stage)
        folder.mkdir(parents=True, exist_ok=True)
        stage.prepare(self._store, folder)
        write_json(folder / REQUEST, write_request(stage))
        environment = {"AMAZON_ELECTRA_PROGRESS": "json", "MLFLOW_TRACKING_URI": ""}
        environment |= stage.list_environment(self._store)
        with self._lock:
            child = next((one for one in self._idle if one.environment == environment), None)
            if child:
                self._idle.remove(child)
        if child is None:
            self.end_idle()
            command = [sys.executable, "-m", RUN_STAGE, "--events", self._store.address]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            child = start_child(command, self._store.root / JOBS_LOG, environment, **pipes)
        assert child.stdin is not None
        child.stdin.write(f"{stage.path}\n".encode())
        return child


def read_progress(log: Path, start: int) -> tuple[list[dict[str, Any]], int]:
    """Return what a job has reported of its progress in its log from a place on, and the place up
    to which the log was read; nothing where the stage's folder is removed again.
    """
    reports = []
    with suppress(FileNotFoundError), open(log, "rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                break
            start += len(line)
            if line.startswith(b"PROGRESS "):
                with suppress(ValueError):
                    reports.append(json.loads(line.removeprefix(b"PROGRESS ")))
            elif line.startswith(b"JOB "):  # beam_jobs.core.progress.announce_job
                reports.append({"link": line.decode().removeprefix("JOB ").strip()})
    return reports, start


def raise_failure(name: str, code: int, cause: str, log: Path) -> NoReturn:
    """Raise the error of a job that ended with this exit code: a TransientError where another
    attempt may pass.
    """
    may_pass = code == os.EX_TEMPFAIL or read_signal(code) in TRANSIENT_SIGNALS
    again = "the same command continues at this stage once the cause is fixed"
    again = "a second attempt may pass" if may_pass else again
    kind = TransientError if may_pass else JobFailed
    raise kind(f"{name} failed: {cause} (exit code {code}; {again}; log: {log})")


def find_cause(code: int, log: Path, start: int) -> str:
    """Return why a process ended with this code: a signal, or the last line of its part of a log
    that is no progress; an error's before any other.
    """
    if ending := read_signal(code):
        return f"ended by {ending.name}"
    with open(log, "rb") as file:
        file.seek(max(start, file.seek(0, os.SEEK_END) - 16_384))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    spoken = [line for line in lines if line and not line.startswith("PROGRESS ")]
    errors = [line for line in spoken if line.startswith("error: ")]
    return (errors or spoken or ["no output"])[-1]


def read_signal(code: int) -> signal.Signals | None:
    """Return the signal that ended a process with this exit code, or None; 128 + its number where
    a shell, or a job that caught it, says so.
    """
    number = -code if code < 0 else code - 128
    return signal.Signals(number) if number in set(signal.Signals) else None
