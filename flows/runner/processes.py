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
from itertools import takewhile
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, NoReturn

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
Progress = dict[str, Any]

_living: set["Child"] = set()
_ending = threading.Event()
_blocks: list[None] = []
"""One entry for each `end_children_on_error` block that is open: they may lie in one another."""
_starter = ThreadPoolExecutor(1, thread_name_prefix="children")
"""The thread that starts all children: they end with the thread that started them."""


class Terminated(KeyboardInterrupt):
    """A SIGTERM: the run ends at once, where after Ctrl-C it keeps the best so far."""


def may_pass(code: int) -> bool:
    """Return whether another attempt may succeed after this exit code."""
    return code == os.EX_TEMPFAIL or read_signal(code) in TRANSIENT_SIGNALS


def run_job(module: str, arguments: Sequence[str], log: Path) -> dict[str, Any]:
    """Run `python -m module arguments…` to its end and return its result; stderr goes to `log`."""
    child = start_child([sys.executable, "-m", module, *arguments], log, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        answer = child.stdout.read()
        child.wait()
    finally:
        child.end()
    if child.code:
        raise_failure(module, child.code, find_last_line(log, child.log_start), log)
    return dict(json.loads(answer.decode() or "{}"))


def raise_failure(name: str, code: int, line: str, log: Path) -> NoReturn:
    """Raise the error of a job that ended with this exit code; `line` says why. It is a
    TransientError where another attempt may pass.
    """
    if code == 2:
        raise UserError(line.removeprefix("error: "))
    ending = read_signal(code)
    cause = f"ended by {ending.name}" if ending else line
    again = "the same command continues at this stage once the cause is fixed"
    again = "a second attempt may pass" if may_pass(code) else again
    kind = TransientError if may_pass(code) else JobFailed
    raise kind(f"{name} failed: {cause} (exit code {code}; {again}; log: {log})")


def start_child(*arguments: Any, **options: Any) -> "Child":
    """Start a child; InterruptedError where the run is ending."""
    refuse_when_ending()
    child = _starter.submit(Child, *arguments, **options).result()
    _living.add(child)
    if _ending.is_set():  # a signal while it was being started: `end_children` did not see it
        child.end()
        refuse_when_ending()
    return child


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
        child.terminate()
    for child in children:
        child.end()


class Child:
    """A process in a session of its own, and whatever it starts."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        stdout: int | None = None,
    ):
        """Start the command; `environment` is added to this process's own. What it writes is
        appended to `log`, its stdout goes to a pipe if that is asked for.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log, self._lock = log, threading.Lock()
        with open(log, "ab") as file:
            shown = " ".join(command)
            file.write(f"\n== {time.strftime('%Y-%m-%d %H:%M:%S')} {shown}\n".encode())
            self.log_start = file.tell()
            file.flush()
            self._process = subprocess.Popen(
                bind_command(command),
                stdin=subprocess.DEVNULL,
                stdout=file if stdout is None else stdout,
                stderr=file,
                env=os.environ | PYTHON_ENVIRONMENT | dict(environment or {}),
                start_new_session=True,
            )
        self.stdout: BinaryIO | None = self._process.stdout  # type: ignore[assignment]

    @property
    def pid(self) -> int:
        """Return its process id, which is that of its session too."""
        return self._process.pid

    @property
    def code(self) -> int:
        """Return the exit code of a process that is over; negative: the signal that ended it."""
        assert self._process.returncode is not None
        return self._process.returncode

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        """Return its exit code once it is over; what it has left in its session is ended."""
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        _living.discard(self)
        return self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM, unless it is over."""
        with self._lock:
            if not self.has_ended():
                self._process.terminate()

    def end(self) -> None:
        """Send SIGTERM, and SIGKILL to all of the session after the grace; return when it is
        over.
        """
        self.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS + 1)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def find_cause(self) -> str:
        """Return why a process that is over ended otherwise than well."""
        ending = read_signal(self.code)
        return f"ended by {ending.name}" if ending else find_last_line(self.log, self.log_start)


class Makers:
    """The child processes that make the stages of a group; each of its tasks waits for its own.

    The first task that wants a stage starts a process for all chains whose inputs are complete. A
    stage that fails is its task's failure, the others go on; where a process is killed, the next
    task that wants what is missing starts another one for all of it.
    """

    def __init__(self, store: Store, chains: Sequence[Sequence[Stage]], at_once: int = 1):
        self._store, self._chains, self._at_once = store, chains, at_once
        self._free, self._changed = at_once, threading.Condition()
        self._events: dict[str, SimpleQueue[dict[str, Any]]] = {}
        """Of each stage that a living process is to make."""
        self._failed = set[str]()

    def begin(self) -> None:
        """Start what can be made now; tasks follow it later."""
        with self._changed:
            for chain in self._chains:
                if self._free and self._is_ready(chain, chain[0].list_environment(self._store)):
                    self._start(chain[0])

    def is_making(self, stage: Stage) -> bool:
        """Return whether a task is to follow a stage, though it may be complete by now."""
        return stage.path in self._events

    def follow(self, stage: Stage) -> Iterator[dict[str, Any]]:
        """Yield what happens to a stage until it is complete: that another process is making it
        (`waits`), that it is `begun`, its `progress`; raise why it cannot be made.
        """
        with self._changed:
            while stage.path not in self._events:
                self.begin()  # in the order of the group, not that of its tasks
                if stage.path in self._events:
                    break
                if self._free:
                    self._start(stage)
                else:
                    self._changed.wait()
            events = self._events[stage.path]
        lines: Iterator[Progress] | None = None
        while True:
            try:
                event = events.get(timeout=POLL_SECONDS if lines else None)
            except Empty:
                event = {"is": "progress"}
            if event["is"] == "begun":
                lines = read_progress(Path(event["log"]), event["start"])
                yield event
            for progress in takewhile(bool, lines or ()):
                yield {"is": "progress", "progress": progress}
            if event["is"] in ("made", "failed"):
                with self._changed:
                    self._events.pop(stage.path, None)
            if event["is"] == "made":
                return
            if event["is"] == "failed":
                refuse_when_ending()
                if "mistake" in event:
                    raise UserError(**event["mistake"])
                found = event.get("error") or find_last_line(Path(event["log"]), event["start"])
                raise_failure(stage.label, event["code"], found, self._store.folder(stage) / LOG)
            if event["is"] == "waits":
                yield event

    def _start(self, wanted: Stage) -> None:
        """Start a process for the chain of a stage, and for all others that can be made now."""
        environment = wanted.list_environment(self._store)
        chains = [
            [stage for stage in chain if stage.has_job]
            for chain in self._chains
            if wanted.path in {stage.path for stage in chain} or self._is_ready(chain, environment)
        ]
        stages = [stage for chain in chains for stage in chain]
        for stage in stages:
            folder = self._store.folder(stage)
            folder.mkdir(parents=True, exist_ok=True)
            stage.prepare(self._store, folder)
            write_json(folder / REQUEST, write_request([stage]))
        at_once = min(self._free, len(chains))
        command = [sys.executable, "-m", RUN_STAGE, "--events", f"--at-once={at_once}"]
        command.append(self._store.address)
        command += [",".join(stage.path for stage in chain) for chain in chains]
        ours = {"AMAZON_ELECTRA_PROGRESS": "json", "MLFLOW_TRACKING_URI": "", **environment}
        child = start_child(command, self._store.root / JOBS_LOG, ours, stdout=subprocess.PIPE)
        self._free -= at_once
        self._events |= {stage.path: SimpleQueue() for stage in stages}
        paths = [[stage.path for stage in chain] for chain in chains]
        threading.Thread(target=child.wait, daemon=True).start()
        threading.Thread(target=self._read, args=(child, paths, at_once), daemon=True).start()

    def _is_ready(self, chain: Sequence[Stage], environment: Mapping[str, str]) -> bool:
        """Return whether a process of this environment may make a chain now."""
        own = {stage.path for stage in chain}
        group = {stage.path: stage for one in self._chains for stage in one}
        sources = {source.path for stage in chain for source in stage.inputs.values()} - own
        return (
            not own & (self._events.keys() | self._failed)
            and any(self._store.manifest(stage) is None for stage in chain)
            and chain[0].list_environment(self._store) == environment
            and all(self._store.manifest(group[one]) for one in sources & group.keys())
        )

    def _read(self, child: Child, chains: Sequence[Sequence[str]], at_once: int) -> None:
        """Pass on the events of a child until it ends; what it has not made then has failed."""
        assert child.stdout is not None
        begun: dict[int, dict[str, Any]] = {}
        """What each of its processes is making."""
        where = {"log": str(child.log), "start": child.log_start}
        following = {path: chain[n:] for chain in chains for n, path in enumerate(chain)}

        def fail(event: dict[str, Any]) -> None:
            with self._changed:
                for path in following[event["stage"]]:
                    following.pop(path)
                    self._events[path].put({**where, **event, "is": "failed"})
                    if not may_pass(event["code"]):
                        self._failed.add(path)

        for line in child.stdout:
            event = json.loads(line)
            known = begun.pop(event["pid"], None)
            if event["is"] == "failed":
                fail(event)
            elif event["is"] == "made":
                following.pop(event["stage"])
                self._events[event["stage"]].put(event)
            elif event["is"] == "ended" and known:  # it was killed
                fail({**known, "code": event["code"]})
            elif event["is"] != "ended":
                begun[event["pid"]] = event
                self._events[event["stage"]].put(event)
        code = child.wait() or os.EX_TEMPFAIL
        for path in tuple(following):
            if path in following:
                fail({"stage": path, "code": code})
        with self._changed:
            self._free += at_once
            self._changed.notify_all()


def read_progress(log: Path, start: int) -> Iterator[Progress]:
    """Yield what a job reports of its progress from a place of its log on, and an empty one at the
    end of what it has written so far.
    """
    with open(log, "rb") as file:
        file.seek(start)
        rest = b""
        while True:
            *lines, rest = (rest + file.read()).split(b"\n")
            for line in lines:
                if line.startswith(b"PROGRESS "):
                    with suppress(ValueError):
                        yield json.loads(line.removeprefix(b"PROGRESS "))
                elif line.startswith(b"JOB "):  # beam_jobs.core.progress.announce_job
                    yield {"link": line.removeprefix(b"JOB ").decode()}
            yield {}


def find_last_line(log: Path, start: int) -> str:
    """Return the last line of a part of a log that is no progress; an error's before any other."""
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
