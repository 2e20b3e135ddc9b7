"""Makes stages: `python -m amazon_electra.flows.run_stage STORE STAGE/FINGERPRINT…`.

The run that wants them writes the request of each, `stage.json`, into its folder and starts this
with `--events` in a session of its own; a person who debugs types the same line without it. A stage
that is complete is not made again; one that another process is making is waited for.

With `--events` each argument may be a chain, `STAGE/FINGERPRINT,STAGE/FINGERPRINT`, and `--at-once`
chains are made at the same time, by processes that start and import once for all chains they
take. One that fails ends its process, so nothing of the failure is left for the next. Each line of
stdout is an event as JSON; what jobs write is in the log of their stage.
"""

import argparse
import gc
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.children import GRACE_SECONDS, end_with_parent
from amazon_electra.beam_jobs.core.command import (
    exit_at_signal,
    give_memory_back,
    main,
    run_to_exit_code,
)
from amazon_electra.beam_jobs.core.errors import JobFailed, UserError, describe_error
from amazon_electra.flows.stages.report import STUDY
from amazon_electra.flows.store.stage import Stage, read_request
from amazon_electra.flows.store.store import LOG, REQUEST, Store

MAX_ERROR = 2_000
"""Characters of an event: a line is written in one piece up to 4,096 bytes."""
Tell = Callable[..., None]
"""Writes an event: what is happening to a stage, and more about it."""


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Make the stages that the arguments name; return their results by folder."""
    parser = argparse.ArgumentParser(
        prog="python -m amazon_electra.flows.run_stage", description=__doc__
    )
    parser.add_argument("store", help="folder or address of the store")
    parser.add_argument("stages", nargs="+", help="STAGE/FINGERPRINT, a folder with a stage.json")
    parser.add_argument("--events", action="store_true", help="write events and logs, for a run")
    parser.add_argument("--at-once", type=int, default=1, help="chains made at the same time")
    given = parser.parse_args(argv)
    chains = [chain.split(",") for chain in given.stages]
    if given.events:
        supervise(given.store, chains, given.at_once)
    store, results = Store(given.store), {}
    for path in (path for chain in chains for path in chain):
        results[path] = make(store, load_stage(store, path))
    return results


def load_stage(store: Store, path: str) -> Stage:
    """Return the stage of a folder, `STAGE/FINGERPRINT`, by the request that lies there."""
    file = store.root / path / REQUEST
    if not file.is_file():
        raise UserError(f"{file} is not there; a run writes it when it begins the stage")
    try:
        return read_request(json.loads(file.read_text(encoding="utf-8")), path)
    except ValueError as wrong:
        raise UserError(f"{file}: {wrong}") from None


def make(store: Store, stage: Stage, tell: Tell = lambda event, **more: None) -> dict[str, Any]:
    """Make a stage that is not complete, and return its result: lock, run, publish."""
    if made := store.manifest(stage):
        return dict(made["result"])
    files = [store.folder(stage) / name for name in (REQUEST, STUDY)]  # written by the run
    prepared = {file.name: file.read_bytes() for file in files if file.is_file()}
    with store.lock_stage(stage, partial(tell, "waits")) as folder:
        if made := store.manifest(stage):
            return dict(made["result"])
        for name, content in prepared.items():  # a bucket's first attempt begins anew
            (folder / name).write_bytes(content)
        tell("begun")
        began, used = time.monotonic(), measure_cpu()
        with suppress(OSError):  # Linux: the peak of memory begins anew
            Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
        # an earlier stage's job may have made it along with its own
        known = folder / stage.written_last if stage.written_last else None
        if known and known.exists():
            result = json.loads(known.read_text(encoding="utf-8"))
        else:
            result = stage.run(store, folder)
        peak = max(
            resource.getrusage(who).ru_maxrss
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        check_dumps(store, stage, folder)
        manifest = store.publish(
            stage,
            json.loads(json.dumps(result)),
            seconds=round(time.monotonic() - began, 3),
            cpu_seconds=round(measure_cpu() - used, 3),
            peak_megabytes=round(peak / 1024, 1),
        )
        return dict(manifest["result"])


def check_dumps(store: Store, stage: Stage, folder: Path) -> None:
    """Raise UserError if a dump that the job read is no longer what the stage is named after; what
    was made of it goes. A sample lies elsewhere on each host.
    """
    for dump in (source for source in stage.inputs.values() if source.name == "dump"):
        for path, file in zip(dump.result["paths"], dump.parameters["files"], strict=True):
            is_here = storage.is_remote(path) or Path(path).exists()
            if is_here and store.digest(path) != file["sha256"]:
                shutil.rmtree(folder, ignore_errors=True)
                raise UserError(f"{path} changed while it was read; run the same again")


def measure_cpu() -> float:
    """Return the CPU seconds of this process and of its children that are over."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def supervise(store: str, chains: Sequence[Sequence[str]], at_once: int) -> NoReturn:
    """Have processes make chains of stages, and end with all of the session."""
    events = os.dup(1)
    os.dup2(2, 1)
    orders, written = os.pipe()
    size = max(len(" ".join(chain)) for chain in chains) + 1
    workers, code = set[int](), 0

    def start_worker() -> None:
        parent, pid = os.getpid(), os.fork()
        if pid:
            workers.add(pid)
            return
        end_with_parent(parent)
        with suppress(OSError):  # it is closed once all orders are written
            os.close(written)
        os._exit(work(Store(store), orders, size, events))

    signal.signal(signal.SIGTERM, exit_at_signal)
    try:
        for _ in range(min(at_once, len(chains))):
            start_worker()
        for chain in chains:  # a worker that fails leaves the rest to the next one
            os.write(written, " ".join(chain).ljust(size).encode())
        os.close(written)
        while workers:
            pid, status = os.wait()
            workers.discard(pid)
            if ended := os.waitstatus_to_exitcode(status):
                code = code or (ended if ended > 0 else 128 - ended)
                write_event(events, {"is": "ended", "pid": pid, "code": ended})
                start_worker()
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    finally:
        if workers:
            end_session(workers)
    os._exit(code)


def end_session(workers: set[int]) -> None:
    """Send SIGTERM to the session; after the grace in which a trainer may write its checkpoint
    SIGKILL, for this process too.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
    signal.alarm(int(GRACE_SECONDS))
    while workers:
        workers.discard(os.wait()[0])
    os.killpg(0, signal.SIGKILL)  # what the jobs have left


def write_event(events: int, event: dict[str, Any]) -> None:
    """Write an event, in one piece: lines of several processes do not mix."""
    os.write(events, (json.dumps(event) + "\n").encode())


def work(store: Store, orders: int, size: int, events: int) -> int:
    """Make the chains that this process takes; return the exit code of the first that fails."""
    signal.signal(signal.SIGTERM, exit_at_signal)
    while order := os.read(orders, size).decode():  # each was written in one piece
        for path in order.split():
            code = make_with_log(store, path, events)
            if code:
                return code
            gc.collect()
            give_memory_back()
    return 0


def make_with_log(store: Store, path: str, events: int) -> int:
    """Make a stage whose output goes to its log; write what happens to it as events, and return
    the exit code.
    """
    log, why = dict[str, Any](), dict[str, Any]()

    def tell(event: str, **more: Any) -> None:
        if event == "begun":
            log.update(open_log(store, path))
        place = {"stage": path, "pid": os.getpid(), **log}
        write_event(events, {"is": event, **place, **more})

    def make_loaded() -> dict[str, Any]:
        try:
            make(store, load_stage(store, path), tell)
        except (UserError, JobFailed) as error:  # of others the log says more
            why["error"] = describe_error(error)[:MAX_ERROR]
            if isinstance(error, UserError):
                why["mistake"] = error.describe() | {"message": error.message[:MAX_ERROR]}
            raise
        return {}

    with open(os.devnull, "wb") as nowhere:
        code = run_to_exit_code(make_loaded, nowhere.fileno())
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        tell("failed", code=code, **why)
    else:
        tell("made")
    return code


def open_log(store: Store, path: str) -> dict[str, Any]:
    """Send the output of this process to the log of a stage; return the log, and where its part
    begins.
    """
    log = store.root / path / LOG
    command = f"python -m amazon_electra.flows.run_stage {store.address} {path}"
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"\n== {time.strftime('%Y-%m-%d %H:%M:%S')} {command}\n")
        file.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        return {"log": str(log), "start": file.tell()}


if __name__ == "__main__":
    if "--events" in sys.argv:
        run()
    main(run)
