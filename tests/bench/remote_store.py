"""What a store in a bucket costs: `python tests/bench/remote_store.py [--json]`.

The same run of the whole graph on a local folder and on a real S3 server of this machine,
`--rounds` times in turn: CPU seconds of the command with all its processes, without those of the
server, and the ratio of the medians. The wall seconds mean something on an idle machine only.

`--pools` (needs root and PostgreSQL) lets workers of two pools make the stages of the run on S3, as
deploy/compose.yaml starts them; the run on the folder has the same two servers. CPU seconds are
then those of the run and of both workers with all their processes.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

SETTINGS = ("finetuning.seeds=0", "finetuning.tasks=polarity")
POOLS = ("engine.placement=pools",)


def run_graph(
    store: str,
    chosen: argparse.Namespace,
    environment: dict[str, str],
    settings: Sequence[str] = (),
    workers: Sequence[int] = (),
) -> list[float]:
    """Run the graph on a new store; return wall seconds and CPU seconds, those of the processes
    `workers` and their children included.
    """
    settings = (*settings, *(() if chosen.demo else SETTINGS))
    settings += () if chosen.demo else (f"pretraining.steps={chosen.steps}",)
    words = [sys.executable, "-m", "flows.cli.main", "run", "--dump", f"sample:{chosen.reviews}"]
    words += ["--store", store, *(w for s in settings for w in ("--set", s))]
    before, began = read_cpu_seconds(workers), time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=os.environ | environment)
    return [time.monotonic() - began, read_cpu_seconds(workers) - before]


def read_cpu_seconds(workers: Sequence[int] = ()) -> float:
    """Return the CPU seconds of all children that have ended, and of these with theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    others = (sum(psutil.Process(worker).cpu_times()[:4]) for worker in workers)
    return usage.ru_utime + usage.ru_stime + sum(others)


def list_fingerprints(store: str) -> list[str]:
    """Return the fingerprints of the complete stages of a store."""
    from flows.runner.store import Store

    return sorted(manifest["fingerprint"] for manifest in Store(store).list_manifests())


def measure(chosen: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Return the medians of both and their ratio."""
    local, remote = [], []
    with (serve_pools if chosen.pools else serve_bucket)(folder) as place:
        here, there, environment, settings, workers = place
        for number in range(chosen.rounds):
            local.append(run_graph(f"{here}-{number}", chosen, environment))
            store = f"{there}-{number}"
            remote.append(run_graph(store, chosen, environment, settings, workers))
        os.environ.update(environment)
        is_same = list_fingerprints(f"{here}-0") == list_fingerprints(f"{there}-0")
    (wall, cpu), (far_wall, far_cpu) = (
        [statistics.median(column) for column in zip(*rows, strict=True)]
        for rows in (local, remote)
    )
    return {
        "reviews": chosen.reviews,
        "local_cpu_seconds": round(cpu, 1),
        "s3_cpu_seconds": round(far_cpu, 1),
        "cpu_ratio": round(far_cpu / cpu, 3),
        "local_seconds": round(wall, 1),
        "s3_seconds": round(far_wall, 1),
        "ratio": round(far_wall / wall, 3),
        "same_fingerprints": is_same,
    }


Place = tuple[str, str, dict[str, str], Sequence[str], Sequence[int]]
"""Beginnings of the folders and of the addresses, the environment, and of runs in the bucket the
settings and the processes that work for them.
"""


@contextmanager
def serve_bucket(folder: Path) -> Iterator[Place]:
    """Serve S3; the run makes everything itself."""
    from tests.s3_server import BUCKET, serve_s3

    with serve_s3(folder / "s3") as server:
        environment = server.environment() | {"AMAZON_ELECTRA_STATE": str(folder / "state")}
        yield str(folder / "local"), f"s3://{BUCKET}/run", environment, (), ()


@contextmanager
def serve_pools(folder: Path) -> Iterator[Place]:
    """Serve S3, Prefect and MLflow, with a worker of each pool on a host of its own."""
    from tests.hosts import Host, serve_shared

    with serve_shared(folder) as shared, ExitStack() as ends:
        workers = []
        for name in ("cpu", "accelerator"):
            host = Host(shared, name)
            ends.callback(host.lose)
            workers.append(host.start(f"worker-{name}").pid)
        operator = Host(shared, "operator")
        yield str(folder / "local"), shared.store, operator.environment, POOLS, workers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reviews", type=int, default=4000, help="(default: 4000)")
    parser.add_argument("--steps", type=int, default=200, help="of pre-training (default: 200)")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default: 3)")
    parser.add_argument("--demo", action="store_true", help="the settings of `make demo`")
    parser.add_argument("--pools", action="store_true", help="workers of two pools make it on S3")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(chosen, Path(folder))
    print(
        json.dumps(found)
        if chosen.json
        else "\n".join(f"{name:<20}{value}" for name, value in found.items())
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    main()
