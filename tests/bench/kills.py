"""Kills, and what they change: `python tests/bench/kills.py --minutes 10 [--kills 100]`.

Two hosts, each a process with a part of the store of its own, make the same stages in one bucket of
a local S3 server; their jobs count for some seconds. At random moments a job, the process that runs
the stages, or all of a host is killed (SIGKILL); or the host stands still
(SIGSTOP) for a while. A reader
compares the files of complete stages with their manifests all the while, and `prune --yes`
is run again and again. After some kills the hosts finish in peace, and the files are compared with
those that one host made alone.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.s3_server import BUCKET, connect, serve_s3

ADDRESS, KILLS_A_ROUND, PATIENCE = f"s3://{BUCKET}/kills", 10, 300.0
STILL_SECONDS = 10.0
KINDS = ("job", "run", "host", "stands still")


def make(address: str, stages: int) -> None:
    """Make the stages, again and again until none fails."""
    from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
    from amazon_electra.beam_jobs.core.plugins import register_module
    from amazon_electra.flows.configuration.form import Dump
    from amazon_electra.flows.runner.stage_runner import StageRunner
    from amazon_electra.flows.stages.dump import build_dump_stage
    from amazon_electra.flows.store.stage import Stage
    from amazon_electra.flows.store.store import Store
    from amazon_electra.model.tracking.mlflow_run import Tracking
    from tests.flows.toy_graph import job

    register_module("tests.flows.toy_graph")
    store = Store(address)
    runner = StageRunner(store, [], Tracking("sqlite://"))
    while True:
        try:
            last: Stage = build_dump_stage(Dump(paths=("sample:50",)), store)
            runner.complete_stage(last)
            for n in range(stages):
                ways = {"steps": 10 + n, "seconds_a_step": 0.2}
                last = job("toy", {"source": last}, ways)
                runner.complete_stage(last)
            return
        except (TransientError, JobFailed, UserError, OSError) as failure:
            print(f"again: {failure}", file=sys.stderr, flush=True)
            time.sleep(0.5)


class Host:
    """A machine: its part of the store, and the process that makes the stages."""

    def __init__(self, folder: Path, address: str, stages: int, environment: dict[str, str]):
        folder.mkdir()
        self.folder = folder
        own = {"AMAZON_ELECTRA_STATE": str(folder / "state"), "OMP_NUM_THREADS": "1"}
        self.environment = os.environ | environment | own
        self._words = [sys.executable, __file__, "--make", address, "--stages", str(stages)]

    def start(self) -> None:
        with open(self.folder / "output.txt", "a") as output:
            self.run = subprocess.Popen(self._words, env=self.environment, stderr=output)

    def list_jobs(self) -> list[psutil.Process]:
        """Return the processes below."""
        with suppress(psutil.Error):
            return psutil.Process(self.run.pid).children(recursive=True)
        return []

    def disturb(self, kind: str) -> bool:
        """Do something to the host while a job runs; return whether one did."""
        jobs = self.list_jobs()
        if not jobs or self.run.poll() is not None:
            return False
        every = [psutil.Process(self.run.pid), *jobs]
        chosen = {"job": jobs, "run": every[:1]}.get(kind, every)
        for process in chosen:
            with suppress(psutil.Error):
                process.suspend() if kind == "stands still" else process.kill()
        if kind == "stands still":
            time.sleep(STILL_SECONDS)
            for process in chosen:
                with suppress(psutil.Error):
                    process.resume()
        return True


def read_stages(there, wrong: set[str]) -> dict[str, str]:
    """Return the SHA-256 of all files of data of complete stages; `wrong` gets the names of those
    that differ from their manifest, where that is still there.
    """
    found = {}
    for path in there.glob(f"{ADDRESS}/*/*/manifest.json"):
        with suppress(FileNotFoundError):
            manifest = json.loads(there.cat_file(path))
            start = f"{path.removesuffix('manifest.json')}{manifest['attempt']}"
            for file in manifest["files"]:
                name = f"{manifest['stage']}/{manifest['fingerprint']}/{file['path']}"
                try:
                    content = there.cat_file(f"{start}/{file['path']}")
                except FileNotFoundError:
                    if there.exists(path):  # not pruned meanwhile
                        wrong.add(name)
                    continue
                if hashlib.sha256(content).hexdigest() != file["sha256"]:
                    wrong.add(name)
                if name.endswith("made.txt"):
                    found[name] = file["sha256"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10, help="after which no round follows")
    parser.add_argument("--stages", type=int, default=8, help="made of one another")
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two, at most")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        return make(given.make, given.stages)
    random.seed(0)
    done, wrong = Counter[str](), set[str]()
    rounds = read = compared = hung = differing = 0
    with tempfile.TemporaryDirectory(prefix="kills-") as name, serve_s3(Path(name, "s3")) as s3:
        folder, there = Path(name), connect(s3)
        over, emptying = threading.Event(), threading.Lock()
        hosts = [Host(folder / n, ADDRESS, given.stages, s3.environment()) for n in ("a", "b")]
        pruner = Host(folder / "pruner", ADDRESS, given.stages, s3.environment())
        prune = [sys.executable, "-m", "amazon_electra.flows.cli.main", "prune", "--yes"]
        prune += ["--store", ADDRESS]

        def watch() -> None:
            nonlocal read
            while not over.wait(1):
                with emptying:
                    read += len(read_stages(there, wrong))

        def prune_again() -> None:
            while not over.wait(5):
                if any(host.run.poll() is None for host in hosts):
                    subprocess.run(prune, env=pruner.environment, capture_output=True)

        def finish() -> dict[str, str]:
            """Return what the hosts have made once they end; those that do not are hung."""
            nonlocal hung
            last = time.monotonic() + PATIENCE
            while any(host.run.poll() is None for host in hosts) and time.monotonic() < last:
                time.sleep(0.2)
                for host in hosts:
                    if host.run.poll() not in (None, 0):
                        host.start()
            for host in hosts:
                hung += host.run.poll() is None
                host.run.kill()
                shutil.rmtree(host.folder / "state", ignore_errors=True)
            with emptying:
                found = read_stages(there, wrong)
                there.rm(ADDRESS, recursive=True)
            return found

        hosts[0].start()
        hosts[1].run = hosts[0].run
        expected, deadline = finish(), time.monotonic() + 60 * given.minutes
        for target in (watch, prune_again):
            threading.Thread(target=target, daemon=True).start()
        while sum(done.values()) < given.kills and time.monotonic() < deadline:
            for host in hosts:
                host.start()
            goal = sum(done.values()) + KILLS_A_ROUND
            while sum(done.values()) < goal and any(h.run.poll() is None for h in hosts):
                time.sleep(random.uniform(0, given.pause))
                host, kind = random.choice(hosts), random.choice(KINDS)
                done[kind] += host.disturb(kind)
                for host in hosts:
                    if host.run.poll() not in (None, 0):
                        host.start()
            found = finish()
            here = expected.keys() & found.keys()  # the others were pruned
            compared += len(here)
            differing += sum(found[name] != expected[name] for name in here)
            rounds += 1
            print(rounds, dict(done), hung, differing, sorted(wrong), file=sys.stderr, flush=True)
        over.set()
    print("| disturbed | rounds | compared | differ | read meanwhile | readers misled | hung |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    about = ", ".join(f"{kind} {done[kind]}" for kind in KINDS)
    counts = (f"{sum(done.values())}: {about}", rounds, compared, differing, read, len(wrong), hung)
    print(f"| {' | '.join(map(str, counts))} |")


if __name__ == "__main__":
    main()
