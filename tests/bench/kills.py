"""Kills, and what they change: `python tests/bench/kills.py --minutes 10 [--kills 20]`.

Two hosts, each a process with a part of the store of its own, make the same stages in one bucket of
a local S3 server; their jobs count for some seconds. At random moments a job, the process that runs
the stages, or all of a host is killed (SIGKILL), while `prune --yes` runs again and again. After
some kills the hosts finish in peace, and the files are compared with their manifests and with those
that one host made alone.
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
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.s3_server import BUCKET, connect, serve_s3

ROOT = str(Path(__file__).parents[2])
ADDRESS, KILLS_A_ROUND, PATIENCE = f"s3://{BUCKET}/kills", 10, 300.0
KINDS = ("job", "run", "host")


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
        own = {"XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"}
        own["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
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
                process.kill()
        return True


def read_stages(there) -> dict[str, str]:
    """Return the SHA-256 of what each stage made; exit if a file differs from its manifest."""
    found = {}
    for path in there.glob(f"{ADDRESS}/*/*/manifest.json"):
        manifest = json.loads(there.cat_file(path))
        start = f"{path.removesuffix('manifest.json')}{manifest['attempt']}"
        for file in manifest["files"]:
            name = f"{manifest['stage']}/{manifest['fingerprint']}/{file['path']}"
            content = there.cat_file(f"{start}/{file['path']}")
            if hashlib.sha256(content).hexdigest() != file["sha256"]:
                sys.exit(f"{name} differs from its manifest")
            if name.endswith("made.txt"):
                found[name] = file["sha256"]
    return found


def finish(hosts: list[Host], there) -> dict[str, str]:
    """Let the hosts end, and return what they made; the bucket is empty afterwards."""
    last = time.monotonic() + PATIENCE
    while any(host.run.poll() != 0 for host in hosts):
        if time.monotonic() > last:
            for host in hosts:
                host.run.kill()
            told = [(host.folder / "output.txt").read_text()[-2_000:] for host in hosts]
            sys.exit("\n".join([f"not done after {PATIENCE:.0f} s", *told]))
        time.sleep(0.2)
        for host in hosts:
            if host.run.poll() not in (None, 0):
                host.start()
    found = read_stages(there)
    there.rm(ADDRESS, recursive=True)
    for host in hosts:
        shutil.rmtree(host.folder / "state", ignore_errors=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10, help="after which no round follows")
    parser.add_argument("--stages", type=int, default=8, help="made of one another")
    parser.add_argument("--pause", type=float, default=10.0, help="seconds between two, at most")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        return make(given.make, given.stages)
    random.seed(0)
    done = Counter[str]()
    rounds = compared = differing = 0
    with tempfile.TemporaryDirectory(prefix="kills-") as name, serve_s3(Path(name, "s3")) as s3:
        folder, there = Path(name), connect(s3)
        hosts = [Host(folder / n, ADDRESS, given.stages, s3.environment()) for n in ("a", "b")]
        prune = [sys.executable, "-m", "amazon_electra.flows.cli.main", "prune", "--yes"]
        prune += ["--store", ADDRESS]
        hosts[0].start()
        expected, deadline = finish(hosts[:1], there), time.monotonic() + 60 * given.minutes
        while sum(done.values()) < given.kills and time.monotonic() < deadline:
            for host in hosts:
                host.start()
            goal = sum(done.values()) + KILLS_A_ROUND
            while sum(done.values()) < goal and any(h.run.poll() is None for h in hosts):
                time.sleep(random.uniform(0, given.pause))
                host, kind = random.choice(hosts), random.choice(KINDS)
                done[kind] += host.disturb(kind)
                subprocess.run(prune, env=hosts[0].environment, capture_output=True)
                for host in hosts:
                    if host.run.poll() not in (None, 0):
                        host.start()
            found = finish(hosts, there)
            here = expected.keys() & found.keys()  # the others were pruned
            compared += len(here)
            differing += sum(found[name] != expected[name] for name in here)
            rounds += 1
    print("| killed | rounds | compared | differ |\n| --- | --- | --- | --- |")
    about = ", ".join(f"{kind} {done[kind]}" for kind in KINDS)
    print(f"| {sum(done.values())}: {about} | {rounds} | {compared} | {differing} |")


if __name__ == "__main__":
    main()
