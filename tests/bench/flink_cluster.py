"""What a Flink cluster costs beside the local engine: the corpus job on both, from one S3 server.

    python tests/bench/flink_cluster.py --dump 'reviews/*.gz' [--reviews 400000]

The cluster is that of tests/flink: needs root, and what `make test-flink` gathers. CPU seconds are
those of all processes of the hosts without the S3 server's, looked at twice a second; memory is
what a process holds at most. A Flink job is run once before. Where there are too few cores for the
S3 server too, --cpu_share gives each TaskManager less than one, by a control group.
"""

import argparse
import glob
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.flows.configuration.form import Engine
from tests.bench.dumps import write_dump
from tests.flink.cluster import WORKERS, Cluster, start_cluster
from tests.patience import eventually

HOSTS = ("job", "jobmanager", "jobserver", *WORKERS)
PARTS = {  # a word of the command of each
    "SdkHarness": "python_worker",
    "TaskManagerRunner": "task_manager",
    "ClusterEntrypoint": "job_manager",
    "FlinkJobServerDriver": "job_server",
    "corpus_job": "job",
}
GROUPS = Path("/sys/fs/cgroup/cpu")
"""The control groups of Linux, version 1."""


class Meter:
    """Looks at the processes of a cluster's hosts until the block ends."""

    def __init__(self, cluster: Cluster):
        self._hosts = [cluster.hosts[name] for name in HOSTS]
        self._parts: dict[tuple, str] = {}
        self._first: dict[tuple, float] = {}
        self._last: dict[tuple, float] = {}
        self.seconds: dict[str, float] = {}
        self.megabytes: dict[str, float] = {}

    def __enter__(self) -> "Meter":
        self._look()
        self._first = dict(self._last)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look_on)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        self._look()
        for key, seconds in self._last.items():
            part, spent = self._parts[key], seconds - self._first.get(key, 0.0)
            self.seconds[part] = self.seconds.get(part, 0.0) + spent

    def _look_on(self) -> None:
        while not self._end.wait(0.5):
            self._look()

    def _look(self) -> None:
        for process in [p for host in self._hosts for p in host.list_processes()]:
            with suppress(psutil.NoSuchProcess):
                key = process.pid, process.create_time()
                command = " ".join(process.cmdline())  # empty once it has ended
                found = next((name for word, name in PARTS.items() if word in command), "other")
                if found != "other":
                    self._parts[key] = found
                part = self._parts.setdefault(key, found)
                times = process.cpu_times()
                self._last[key] = times.user + times.system
                held = process.memory_info().rss / 1e6
                self.megabytes[part] = max(self.megabytes.get(part, 0.0), held)


def measure_job(
    cluster: Cluster, output: str, engine: Engine, workers: int, files: str = "*"
) -> dict[str, object]:
    """Run the corpus job on files of the dump; return what it took."""
    cluster.engine = engine
    began = time.monotonic()
    with Meter(cluster) as meter:
        words = ["--input", f"s3://store/measured/{files}"]
        if engine.kind == "local":
            words += ["--direct_num_workers", str(workers)]
        job = cluster.start_job("amazon_electra.beam_jobs.corpus_job", output, *words)
        assert job.wait() == 0, cluster.read_log(output)[-3000:]
    return {
        "engine": engine.kind,
        "workers": workers,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(sum(meter.seconds.values()), 1),
        "cpu_seconds_by_part": {n: round(s, 1) for n, s in meter.seconds.items() if s >= 0.1},
        "peak_megabytes": {n: round(m) for n, m in meter.megabytes.items()},
    }


def measure(chosen: argparse.Namespace, folder: Path) -> list[dict[str, object]]:
    """Return a row for the local engine and one for each number of TaskManagers."""
    (folder / "hidden").mkdir()
    (folder / "logs").mkdir()
    with (
        limit_cpu(chosen.cpu_share) as limits,
        start_cluster(folder / "hidden", folder / "logs", limits) as cluster,
    ):
        write_dump(sorted(glob.glob(chosen.dump)), folder / "measured", chosen.reviews)
        cluster.put(folder / "measured")
        flink = cluster.engine
        if chosen.warm:
            measure_job(cluster, "warm", flink, 2, "dump-0.*")
        rows = [measure_job(cluster, "local", Engine(), max(chosen.task_managers))]
        expected = read_corpus(cluster, "local")
        for number in chosen.task_managers:
            engine = flink.model_copy(update={"workers": number})
            row = measure_job(cluster, f"flink{number}", engine, number)
            row["same_bytes"] = read_corpus(cluster, f"flink{number}") == expected
            rows.append(row)
    return rows


@contextmanager
def limit_cpu(share: float) -> Iterator[dict[str, list[str]]]:
    """Yield by host words before a command that give it so much of a core; 0: no limit."""
    groups = {name: GROUPS / f"ae-{os.getpid()}-{name}" for name in WORKERS if share}
    for group in groups.values():
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text(str(round(share * 100_000)))
    try:
        enter = 'echo $$ > "$1"; shift; exec "$@"'
        yield {name: ["sh", "-ec", enter, "sh", f"{g}/tasks"] for name, g in groups.items()}
    finally:
        for group in groups.values():
            eventually(lambda group=group: not (group / "tasks").read_text())
            group.rmdir()


def read_corpus(cluster: Cluster, folder: str) -> dict[str, bytes]:
    return {n: b for n, b in cluster.read_files(folder).items() if n != "corpus.json"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dump", required=True, help="files of a dump, as a pattern")
    parser.add_argument("--reviews", type=int, help="also new ones of their words (default: all)")
    parser.add_argument("--task_managers", type=int, nargs="+", default=[2], help="(default: 2)")
    parser.add_argument("--cpu_share", type=float, default=0, help="of a core for a TaskManager")
    parser.add_argument("--cold", dest="warm", action="store_false", help="measure the first job")
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(chosen, Path(folder))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
