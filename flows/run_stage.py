"""Makes stages: `python -m amazon_electra.flows.run_stage STORE STAGE/FINGERPRINT…`.

A run writes `stage.json`, the request, into the folder of each, and starts this as `--events
STORE`: each line of stdin names a stage, each of stdout is an event. The first failure ends it.
"""

import argparse
import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class
from amazon_electra.beam_jobs.core.command import (
    exit_at_signal,
    give_memory_back,
    main,
    run_to_exit_code,
)
from amazon_electra.beam_jobs.core.errors import JobFailed, UserError, describe_error, require
from amazon_electra.beam_jobs.core.nesting import find_json, read_json
from amazon_electra.flows.stages.report import STUDY
from amazon_electra.flows.store.stage import read_request
from amazon_electra.flows.store.store import LOG, REQUEST, Store


def run() -> dict[str, Any]:
    """Make the stages that the arguments name; return their results by folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="folder or address of the store")
    parser.add_argument("stages", nargs="+", help="STAGE/FINGERPRINT, a folder with a stage.json")
    given = parser.parse_args()
    store = Store(given.store)
    return {path: make(store, path) for path in given.stages}


def make(
    store: Store, path: str, on_event: Callable[[str], None] = lambda event: None
) -> dict[str, Any]:
    """Make the stage of `STAGE/FINGERPRINT`, unless it is complete; return its result."""
    if made := store.read_manifest(path):
        return dict(made["result"])
    files = [store.root / path / name for name in (REQUEST, STUDY)]  # written by the run
    require(files[0].is_file(), f"{files[0]} is not there; a run writes it, once it is to be made")
    try:
        stage = read_request(read_json(files[0]), path)
    except ValueError as wrong:
        raise UserError(f"{files[0]}: {wrong}") from None
    prepared = {file: file.read_bytes() for file in files if file.is_file()}
    with store.lock_stage(stage, partial(on_event, "waits")) as folder:
        if made := store.manifest(stage):
            return dict(made["result"])
        for file, content in prepared.items():  # a bucket's first attempt begins anew
            file.write_bytes(content)
        on_event("begun")
        began, used = time.monotonic(), measure_cpu()
        # an earlier stage's job may have made it along with its own
        written = find_json(folder / stage.written_last) if stage.written_last else {}
        result = json.loads(json.dumps(written or stage.run(store, folder)))
        seconds, cpu = time.monotonic() - began, measure_cpu() - used
        cost = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}
        return dict(store.publish(stage, result, **cost)["result"])


def measure_cpu() -> float:
    """Return the CPU seconds of this process and of its children that are over."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def serve(store: Store) -> NoReturn:
    """Make the stages that stdin names until one fails; end with all of the session."""
    events, code = os.dup(1), 0
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, exit_at_signal)
    try:
        for line in sys.stdin:
            if code := make_with_events(store, line.strip(), events):
                break
            gc.collect()
            give_memory_back()
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)  # what the jobs have left
        os._exit(code)


def make_with_events(store: Store, path: str, events: int) -> int:
    """Make a stage whose output goes to its log; write events, and return the exit code."""
    failure = dict[str, Any]()

    def write_event(event: str, **more: Any) -> None:
        if event == "begun":
            more = open_log(store, path)
        os.write(events, (json.dumps({"is": event, **more}) + "\n").encode())

    def make_loaded() -> dict[str, Any]:
        try:
            make(store, path, write_event)
        except (UserError, JobFailed) as error:  # of others the log says more
            failure["error"] = describe_error(error)
            if isinstance(error, UserError):
                failure["mistake"] = error.describe()
            raise
        return {"is": "made"}

    if code := run_to_exit_code(make_loaded, events):
        write_event("failed", code=code, **failure)
    return code


def open_log(store: Store, path: str) -> dict[str, Any]:
    """Send the output of this process to the log of a stage; return where it begins."""
    log = store.root / path / LOG
    command = f"python -m amazon_electra.flows.run_stage {store.address} {path}"
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"\n== {time.strftime('%Y-%m-%d %H:%M:%S')} {command}\n")
        file.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        return {"log": str(log), "start": file.tell()}


if __name__ == "__main__":
    if sys.argv[1] == "--events":
        serve(Store(sys.argv[2]))
    main(run)
