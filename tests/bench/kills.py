"""How long until work goes on after a kill, and that the bytes stay: `python tests/bench/kills.py
--kills 100`.

Two hosts, with a folder and a Prefect server of their own, make the same encoder in one bucket of a
local S3 server: corpus, vocabulary, shards, pre-training. Of the one that works a random process is
killed (SIGKILL) at random moments: the trainer or Beam job, a worker of the job, the run, its
Prefect server, or the whole host, which comes back once the other has taken over; or the host only
stands still (SIGSTOP) or is cut off from the S3 server until then, and goes on as if nothing had
happened. A reader compares the files of complete stages with their manifests all the while. When
the encoder is made its files are compared with those of a run that nobody disturbed, and the next
round begins in an empty bucket. Work goes on when a job reports progress, or a stage is complete.
Prints a row for each kind of kill; ends with an error if bytes differ or work does not go on.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer

import psutil

from tests.s3_server import BUCKET, connect, serve_s3

LEASE_SECONDS, LONGEST_PAUSE, PATIENCE = 10, 8.0, 600.0
SETTINGS = ["pretraining.steps=48", "pretraining.checkpoint_every=8", "corpus.workers=2"]
ADDRESS = f"s3://{BUCKET}/kills"
DATA = (".parquet", ".safetensors", "tokenizer.json", "punkt.json")


def make_encoder(store: str, reviews: int) -> None:
    """Make the encoder in this process, as `amazon-electra run` would."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    from flows.configuration.form import fill_parameters
    from flows.servers import health, prefect_server
    from flows.store.store import Store
    from flows.ui.terminal import load_libraries

    health.interrupt_on_signals(signal.SIGTERM)
    prefect_server.connect_prefect(Store(store).root, load_libraries)
    from prefect import flow

    from flows.runs.graph_run import run_graph
    from tests.flows.made import encoder_graph

    @flow(name="pre-train")
    def pre_train() -> None:
        form = fill_parameters(SETTINGS, dump={"paths": [f"sample:{reviews}"]}, store=store)
        run_graph(encoder_graph, form)

    pre_train()


class Cable(ThreadingTCPServer):
    """A host's way to the S3 server, which may be cut."""

    daemon_threads = True

    def __init__(self, port: int):
        super().__init__(("127.0.0.1", 0), Connection)
        self.port, self.is_cut, self.ends = port, False, list[socket.socket]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def cut(self) -> None:
        self.is_cut = True
        for end in self.ends:
            close(end)


class Connection(BaseRequestHandler):
    server: Cable

    def handle(self) -> None:
        if self.server.is_cut:
            return
        far = socket.create_connection(("127.0.0.1", self.server.port))
        self.server.ends += [self.request, far]
        threading.Thread(target=pass_on, args=(far, self.request), daemon=True).start()
        pass_on(self.request, far)


def pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    close(source)
    close(target)


def close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


class Host:
    """A machine: its part of the store, and the run that it makes."""

    cable: Cable

    def __init__(self, folder: Path, store: str, reviews: int, s3: dict[str, str]):
        outside = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "PREFECT_HOME")
        ours = {name: value for name, value in os.environ.items() if name not in outside}
        own = {"AMAZON_ELECTRA_STATE": str(folder), "OMP_NUM_THREADS": "1"}
        self._environment = {
            **ours,
            **s3,
            **own,
            "AMAZON_ELECTRA_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        self._words = [sys.executable, __file__, "--make", store, "--reviews", str(reviews)]
        self.folder = folder
        folder.mkdir()

    def start(self) -> None:
        with open(self.folder / "output.txt", "a") as output:
            self.run = subprocess.Popen(self._words, env=self._environment, stderr=output)

    def find_victims(self) -> dict[str, list[psutil.Process]]:
        """Return what may be killed while a job runs here, by kind; nothing while none does."""
        found = defaultdict(list)
        try:
            below = psutil.Process(self.run.pid).children(recursive=True)
            for process in below:
                words, parent = process.cmdline(), process.ppid()
                if "guard.py" in str(words):
                    continue
                if any("prefect_application" in word for word in words):
                    found["Prefect server"].append(process)
                elif "guard.py" in str(psutil.Process(parent).cmdline()):
                    found["job"].append(process)
                else:
                    found["worker of a job"].append(process)
        except psutil.NoSuchProcess:
            return {}
        if not found["job"]:
            return {}
        run = psutil.Process(self.run.pid)
        kinds = ("host", "host stood still", "host cut off")
        return {**found, "run": [run], **{kind: [run, *below] for kind in kinds}}

    def clear(self) -> None:
        """Forget the stages; the servers' databases stay."""
        for kind in ("corpus", "vocabulary", "shards", "dev-shards", "pretraining"):
            for folder in self.folder.glob(f"*/{kind}"):
                shutil.rmtree(folder)


def hash_files(manifests: list[dict]) -> dict[str, str]:
    """Return the SHA-256 of all files of data and weights, by stage and name."""
    return {
        f"{m['stage']} {m['fingerprint']} {file['path']}": file["sha256"]
        for m in manifests
        for file in m["files"]
        if file["path"].endswith(DATA)
    }


class Bench:
    def __init__(self, folder: Path, reviews: int, s3):
        self.there, self.seconds = connect(s3), defaultdict[str, list[float]](list)
        self.hosts = []
        for name in ("one", "two"):
            cable = Cable(int(s3.url.rpartition(":")[2]))
            address = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{cable.server_address[1]}"}
            self.hosts.append(Host(folder / name, ADDRESS, reviews, s3.environment() | address))
            self.hosts[-1].cable = cable
        self.rounds, self.read, self.wrong, self.emptying = 0, 0, set[str](), threading.Lock()
        reader = threading.Thread(target=self.read_bucket, args=(connect(s3),), daemon=True)
        reader.start()
        self.is_read = reader.is_alive
        alone = Host(folder / "alone", str(folder / "undisturbed"), reviews, {})
        alone.start()
        if alone.run.wait(PATIENCE) != 0:
            raise SystemExit((alone.folder / "output.txt").read_text()[-2000:])
        found = list((folder / "undisturbed").glob("*/*/manifest.json"))
        self.stages = len(found)
        self.expected = hash_files([json.loads(path.read_text()) for path in found])

    def read_bucket(self, there) -> None:
        """Compare the files of all complete stages with their manifests, again and again."""
        while True:
            time.sleep(1.0)
            with self.emptying:
                for path in there.glob(f"{ADDRESS}/*/*/manifest.json"):
                    manifest = json.loads(there.cat_file(path))
                    start = path.removesuffix("manifest.json") + manifest["attempt"]
                    listed = {f"{start}/{f['path']}": f["sha256"] for f in manifest["files"]}
                    found = there.cat(list(listed), on_error="omit") if listed else {}
                    hashes = {name: hashlib.sha256(found[name]).hexdigest() for name in found}
                    self.wrong |= {name for name in listed if hashes.get(name) != listed[name]}
                    self.read += len(listed)

    def count_progress(self, without: Host | None = None) -> dict[str, int]:
        """Return the reports of each job's log on the hosts, and how many stages are complete."""
        logs = [
            path
            for host in self.hosts
            for path in host.folder.glob("*/*/*/log.txt")
            if host is not without
        ]
        reports = {str(path): path.read_bytes().count(b"PROGRESS ") for path in logs}
        return {**reports, "complete": len(self.there.glob(f"{ADDRESS}/*/*/manifest.json"))}

    def wait_for_progress(self, kind: str, without: Host | None) -> None:
        """Return once a job has reported something or completed a stage, or nothing is left to do;
        of the hosts but one. A run that pauses before a further attempt does not count then.
        """
        began, seen = time.monotonic(), self.count_progress(without)
        running = [host for host in self.hosts if host is not without]
        while seen["complete"] < self.stages and any(h.run.poll() is None for h in running):
            time.sleep(0.2)
            before, seen = seen, self.count_progress(without)
            # a log that is new may be a copy of the other host's
            if any(seen[path] > count for path, count in before.items() if path in seen):
                return
            if time.monotonic() - began > PATIENCE:
                raise SystemExit(f"work does not go on after the kill of: {kind}")

    def kill_once(self) -> bool:
        """Kill something at a random moment; return whether it was done before the end."""
        time.sleep(random.uniform(0, LONGEST_PAUSE))
        while any(host.run.poll() is None for host in self.hosts):
            host = random.choice(self.hosts)
            if host.run.poll() is None and (victims := host.find_victims()):
                kind = random.choice(list(victims))
                self.kill(host, kind, victims[kind])
                return True
            time.sleep(0.2)
        return False

    def kill(self, host: Host, kind: str, processes: list[psutil.Process]) -> None:
        began = time.monotonic()
        stopped = processes if kind == "host stood still" else []
        if kind == "host cut off":
            host.cable.cut()
        else:
            for process in processes if kind.startswith("host") else [random.choice(processes)]:
                with suppress(psutil.NoSuchProcess):
                    process.suspend() if stopped else process.kill()
        if kind == "run":
            host.run.wait()
            host.start()
        try:
            self.wait_for_progress(kind, host if kind == "host cut off" else None)
        finally:
            host.cable.is_cut = False
            for process in stopped:
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        self.seconds[kind].append(time.monotonic() - began)
        if kind == "host":
            host.start()
        print(f"{kind}: {self.seconds[kind][-1]:.1f} s", file=sys.stderr, flush=True)

    def make_round(self, kills: int, deadline: float) -> int:
        """Make the encoder on both hosts, killing what works; return how many kills there were."""
        done = 0
        for host in self.hosts:
            host.start()
        while done < kills and time.monotonic() < deadline and self.kill_once():
            done += 1
        for host in self.hosts:
            code = host.run.wait(PATIENCE)
            while code < 0:  # killed at its very end
                host.start()
                code = host.run.wait(PATIENCE)
            if code:
                raise SystemExit((host.folder / "output.txt").read_text()[-2000:])
        if self.wrong or not self.is_read():
            raise SystemExit(f"a reader saw what no manifest lists: {sorted(self.wrong)}")
        paths = self.there.glob(f"{ADDRESS}/*/*/manifest.json")
        found = hash_files([json.loads(self.there.cat_file(path)) for path in paths])
        if found != self.expected:
            raise SystemExit(
                f"other bytes: {sorted(set(found.items()) ^ set(self.expected.items()))}"
            )
        with self.emptying:
            self.there.rm(ADDRESS, recursive=True)
        for host in self.hosts:
            host.clear()
        self.rounds += 1
        return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=600, help="after which none follows")
    parser.add_argument("--reviews", type=int, default=600, help="of the synthetic dump")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.make:
        make_encoder(args.make, args.reviews)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    random.seed(args.seed)
    deadline = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory(prefix="kills-") as name, serve_s3(Path(name, "s3")) as s3:
        bench, left = Bench(Path(name), args.reviews, s3), args.kills
        try:
            while left and time.monotonic() < deadline:
                left -= bench.make_round(left, deadline)
        finally:
            for host in bench.hosts:
                if hasattr(host, "run"):
                    host.run.kill()
    every = [seconds for kind in bench.seconds.values() for seconds in kind]
    rows = [
        {
            "killed": kind,
            "times": len(seconds),
            "median_seconds": round(statistics.median(seconds), 1),
            "worst_seconds": round(max(seconds), 1),
        }
        for kind, seconds in [("all", every), *sorted(bench.seconds.items())]
    ]
    if args.json:
        print(json.dumps([{**rows[0], "rounds": bench.rounds, "read": bench.read}, *rows[1:]]))
        return
    print(f"{len(every)} kills in {bench.rounds} rounds of the same bytes, none hung")
    print(f"a reader compared {bench.read:,} files with their manifests meanwhile")
    for row in rows:
        print(
            f"{row['killed']:<16} {row['times']:>4}  median {row['median_seconds']:>6} s  "
            f"worst {row['worst_seconds']:>6} s"
        )


if __name__ == "__main__":
    main()
