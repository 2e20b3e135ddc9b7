"""Child processes in a group of their own: start, follow, end.

Every stage is a job of its own (`python -m …`), so that a crash of a trainer is an exit code here,
that its memory is returned, and that it can be ended. A group lives no longer than the flow: see
beam_jobs/core/guard.py. Many small jobs run one after the other in a process that is kept for them
(`WarmWorkers`).
"""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import psutil

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.guard import GRACE_SECONDS, guard_command
from amazon_electra.beam_jobs.core.variables import read_number_variable
from amazon_electra.flows.runner.logs import find_run_logger

POLL_SECONDS = 0.1
PYTHON_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
"""Children write at once, and run no code of the folder in which the user happens to stand."""
TRANSIENT_SIGNALS = {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP}
"""Memory that ran out, a machine that was taken away; what ends by SIGSEGV or SIGABRT is a bug and
ends so again.
"""
HANG_VARIABLE, HANG_MINUTES = "AMAZON_ELECTRA_HANG_MINUTES", 30.0
HANG_LOOKS = 10
"""How often in that time the CPU time of a job's processes is looked at."""
IDLE_SHARE = 0.001
"""Of a core: what threads that wait may use in a job that hangs."""
Progress = dict[str, Any]
AnyChild = TypeVar("AnyChild", bound="Child")

_living: set["Child"] = set()
_ending = threading.Event()
_blocks: list[None] = []
"""One entry for each `end_children_on_error` block that is open: they may lie in one another."""


class JobStalled(RuntimeError):
    """A job has written nothing and used no CPU time for as long as the message says."""


class Terminated(KeyboardInterrupt):
    """A SIGTERM: the run ends at once, where after Ctrl-C it keeps the best so far."""


def build_failure(name: str, code: int, cause: str, log: Path) -> JobFailed:
    """Return the error of a job that ended with this exit code, which is neither 0 nor that of the
    user's mistake: a TransientError where another attempt may pass.
    """
    may_pass = code == os.EX_TEMPFAIL or read_signal(code) in TRANSIENT_SIGNALS
    again = "the same command continues at this stage once the cause is fixed"
    again = "a second attempt may pass" if may_pass else again
    kind = TransientError if may_pass else JobFailed
    return kind(f"{name} failed: {cause} (exit code {code}; {again}; log: {log})")


@dataclass(frozen=True)
class JobResult:
    """What a job that ended well left: its JSON line, and what it cost (its whole process tree)."""

    result: dict[str, Any]
    seconds: float
    cpu_seconds: float
    peak_megabytes: float


def run_job(
    module: str,
    arguments: Sequence[str],
    log: Path,
    environment: Mapping[str, str] | None = None,
    follow: Callable[[Progress], None] = lambda progress: None,
    name: str = "",
    hang_seconds: float = math.inf,
    kept: "WarmWorkers | None" = None,
) -> JobResult:
    """Run `python -m module arguments…` to its end; stderr is appended to `log`, PROGRESS lines go
    to `follow`. A job that hangs for `hang_seconds` is ended, and has failed.

    `name` stands for the job in the message of a failure; empty: the module does. With `kept` the
    job runs in one of these processes. It finds progress as lines of JSON in its environment, and
    no tracking, which the flow does.
    """
    command, name = [sys.executable, "-m", module, *arguments], name or module
    ours = {"AMAZON_ELECTRA_PROGRESS": "json", "MLFLOW_TRACKING_URI": "", **(environment or {})}
    with (
        kept.start_job(command, log, ours)
        if kept
        else start_child(Child, command, log, ours) as child
    ):
        try:
            for progress in child.follow_progress(hang_seconds):
                follow(progress)
        except JobStalled as hangs:
            find_run_logger().warning("%s hangs: %s; it is ended", name, hangs)
            cause = f"{hangs}: it was ended"
            raise build_failure(name, 128 + signal.SIGKILL, cause, log) from None
        return child.collect_result(name)


def read_hang_seconds() -> float:
    """Return after how long without output and CPU time a job hangs; 0 minutes: never."""
    return read_number_variable(HANG_VARIABLE, HANG_MINUTES, 0, "minutes") * 60 or math.inf


@contextmanager
def start_child(kind: type[AnyChild], *arguments: Any) -> Iterator[AnyChild]:
    """Start a child of this kind; it is over when the block is, whatever happened in it."""
    refuse_when_ending()
    child = kind(*arguments)
    _living.add(child)
    try:
        refuse_when_ending()  # a signal while it was being started: `end_children` did not see it
        yield child
    finally:
        child.end()
        _living.discard(child)


def refuse_when_ending() -> None:
    """Raise InterruptedError where an `end_children_on_error` block is being left by an error."""
    if _ending.is_set():
        raise InterruptedError("the run is ending")


@contextmanager
def end_children_on_error() -> Iterator[None]:
    """End every child of this process when the block is left by an exception, and refuse new ones
    until it is left.

    A cancelled flow learns it in its main thread only; the threads that follow children find them
    ended. So code that waits for such threads waits inside this block.
    """
    _blocks.append(None)
    try:
        yield
    except BaseException:
        _ending.set()
        end_children()
        raise
    finally:
        _blocks.pop()
        if not _blocks:
            _ending.clear()


def allow_jobs() -> None:
    """Start jobs again after an `end_children_on_error` block was left by an error that was caught:
    what it followed has ended.
    """
    _ending.clear()


def end_children() -> None:
    """End all children at the same time: one grace for all of them."""
    children = list(_living)
    for child in children:
        child.close_input()
    for child in children:
        child.end()


class Child:
    """One process group: the guard, the job it started, and whatever the job starts."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ):
        """Start the command; `environment` is added to this process's own. It gets `descriptors`
        of this process.
        """
        self._open_log(command, log)
        self._stdout: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._usage: resource.struct_rusage | None = None
        with open(log, "ab") as stderr:
            self._guard = subprocess.Popen(
                guard_command(command, GRACE_SECONDS),
                stdin=subprocess.PIPE,
                stdout=self._stdout,
                stderr=stderr,
                env=os.environ | PYTHON_ENVIRONMENT | dict(environment or {}),
                start_new_session=True,
                pass_fds=descriptors,
            )
        self._lock = threading.Lock()

    def _open_log(self, command: Sequence[str], log: Path) -> None:
        """Begin the part of a log that is the command's."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self.command = log, list(command)
        with open(log, "ab") as header:
            header.write(
                f"\n== {time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(command)}\n".encode()
            )
            self._log_start = header.tell()
        self._began, self.seconds = time.monotonic(), 0.0

    @property
    def pid(self) -> int:
        """Return the guard's process id, which is the group's id too."""
        return self._guard.pid

    def has_ended(self) -> bool:
        """Return whether the job has ended; what it left behind in its group is ended with it."""
        with self._lock:
            if self._guard.returncode is not None:
                return True
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return False
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            _, status, self._usage = os.wait4(self.pid, 0)
            self._guard.returncode = os.waitstatus_to_exitcode(status)
            self.seconds = time.monotonic() - self._began
            self.close_input()
            return True

    def is_over(self) -> bool:
        """Return whether the job is over that `follow_progress` follows."""
        return self.has_ended()

    def close_input(self) -> None:
        """Let go of the guard, which then ends the group."""
        with suppress(OSError):
            assert self._guard.stdin is not None
            self._guard.stdin.close()

    def end(self) -> None:
        """Send SIGTERM to the group, SIGKILL after the grace; return when the job is over."""
        if self.has_ended():
            return
        self.close_input()
        deadline = time.monotonic() + GRACE_SECONDS + 2
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if not self.has_ended():
            os.killpg(self.pid, signal.SIGKILL)
            while not self.has_ended():
                time.sleep(POLL_SECONDS)

    def follow_progress(self, hang_seconds: float = math.inf) -> Iterator[Progress]:
        """Yield what the job reports of its progress, as it reports it, until it is over; raise
        JobStalled where it neither writes nor uses CPU time for so long.
        """
        with open(self.log, "rb") as log:
            log.seek(self._log_start)
            rest, used, active = b"", 0.0, time.monotonic()
            looked = active
            while True:
                ended = self.is_over()
                written, now = log.read(), time.monotonic()
                if written:
                    active = now
                if now - looked > hang_seconds / HANG_LOOKS:
                    looked, cpu_seconds = now, self.measure_cpu()
                    if abs(cpu_seconds - used) > IDLE_SHARE * hang_seconds:
                        used, active = cpu_seconds, now
                if now - active > hang_seconds and not ended:
                    minutes = f"{hang_seconds / 60:g} minutes"
                    raise JobStalled(f"no output and no CPU time for {minutes}")
                rest += written
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    if line.startswith(b"PROGRESS "):
                        with suppress(ValueError):
                            yield json.loads(line.removeprefix(b"PROGRESS "))
                    elif line.startswith(b"JOB "):  # beam_jobs.core.progress.announce_job
                        yield {"link": line.removeprefix(b"JOB ").decode()}
                if ended:
                    return
                time.sleep(POLL_SECONDS)

    def measure_cpu(self) -> float:
        """Return the CPU seconds of the processes that the guard has started, however deep."""
        seconds = 0.0
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    seconds += sum(process.cpu_times()[:4])
        return seconds

    def collect_result(self, name: str) -> JobResult:
        """Return the result of a job that is over; raise UserError, TransientError or JobFailed
        where it failed, InterruptedError where the run ended it.
        """
        code = self._guard.returncode
        assert code is not None
        assert self._usage is not None
        if code:
            refuse_when_ending()
        if code == 2:
            raise UserError(self.find_last_line().removeprefix("error: "))
        if code != 0:
            raise build_failure(name, code, self.find_cause(), self.log)
        self._stdout.seek(0)
        result = json.loads(self._stdout.read().decode() or "{}")
        cpu = self._usage.ru_utime + self._usage.ru_stime
        return JobResult(
            result, round(self.seconds, 3), round(cpu, 3), round(self._usage.ru_maxrss / 1024, 1)
        )

    def find_cause(self) -> str:
        """Return why a job that is over ended otherwise than well."""
        ending = read_signal(self._guard.returncode or 0)
        return f"ended by {ending.name}" if ending else self.find_last_line()

    def find_last_line(self) -> str:
        """Return the last line of the log that is no progress, without what earlier jobs wrote; an
        error's before any other.
        """
        with open(self.log, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - 16_384))
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
        spoken = [line for line in lines if line and not line.startswith("PROGRESS ")]
        errors = [line for line in spoken if line.startswith("error: ")]
        return (errors or spoken or ["no output"])[-1]


class JobProcess(Child):
    """A child that runs jobs one after the other (flows/runner/job_process.py)."""

    def __init__(self, log: Path, environment: Mapping[str, str]):
        """Start it; until its first job it writes to `log`."""
        self.environment = dict(environment)
        orders, written = os.pipe()
        self._orders = os.fdopen(written, "wb", buffering=0)
        command = [sys.executable, "-m", "amazon_electra.flows.runner.job_process", str(orders)]
        try:
            super().__init__(command, log, environment, [orders])
        finally:
            os.close(orders)
        self._answers = 0
        """Bytes of the answers to earlier jobs."""

    def start_job(self, command: Sequence[str], log: Path) -> None:
        """Have it run the job of a command line, `python -m module arguments…`."""
        self._open_log(command, log)
        _, _, module, *arguments = command
        order = {"module": module, "arguments": arguments, "log": str(log)}
        with suppress(BrokenPipeError):  # it has been killed, which its follower finds
            self._orders.write(json.dumps(order).encode() + b"\n")

    def is_over(self) -> bool:
        return self._read_answer().endswith(b"\n") or self.has_ended()

    def collect_result(self, name: str) -> JobResult:
        """Return the answer to the last job; raise as any child does where there is none."""
        answer = self._read_answer()
        if not answer.endswith(b"\n"):
            return super().collect_result(name)
        self._answers += len(answer)
        return JobResult(seconds=round(time.monotonic() - self._began, 3), **json.loads(answer))

    def end(self) -> None:
        self._orders.close()
        super().end()

    def _read_answer(self) -> bytes:
        """Return what it has written since the last job was over."""
        there = os.fstat(self._stdout.fileno()).st_size
        return os.pread(self._stdout.fileno(), there - self._answers, self._answers)


class WarmWorkers:
    """Processes that are kept for further jobs of the same environment until the block is left."""

    def __init__(self) -> None:
        self._all, self._lock, self._idle = ExitStack(), threading.Lock(), list[JobProcess]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._all.close()

    @contextmanager
    def start_job(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> Iterator[JobProcess]:
        """Start a job in an idle process or a new one, which is ended where the job fails."""
        with self._lock:
            fit = [one for one in self._idle if one.environment == environment]
            child = next((one for one in fit if not one.has_ended()), None)
            if child:
                self._idle.remove(child)
            else:
                child = self._all.enter_context(start_child(JobProcess, log, environment))
        child.start_job(command, log)
        try:
            yield child
        except BaseException:
            child.end()
            raise
        with self._lock:
            self._idle.append(child)


def read_signal(code: int) -> signal.Signals | None:
    """Return the signal that ended the job, or None: the guard's exit code is then 128 + its
    number.
    """
    number = -code if code < 0 else code - 128
    return signal.Signals(number) if number in set(signal.Signals) else None
