"""What a store in a bucket costs: `python tests/bench/remote_store.py [--json]`.

The same run of the whole graph on a local folder and on a real S3 server of this machine,
`--rounds` times in turn: CPU seconds of the command with all its processes, without those of the
server, and the ratio of the medians. The wall seconds mean something on an idle machine only.
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
from pathlib import Path

SETTINGS = ("finetuning.seeds=0", "finetuning.tasks=polarity")


def run_graph(store: str, chosen: argparse.Namespace, environment: dict[str, str]) -> list[float]:
    """Run the graph on a new store; return wall seconds and CPU seconds."""
    settings = (*SETTINGS, f"pretraining.steps={chosen.steps}")
    words = [sys.executable, "-m", "flows.cli.main", "run", "--dump", f"sample:{chosen.reviews}"]
    words += ["--store", store, *(w for s in settings for w in ("--set", s))]
    before, began = read_cpu_seconds(), time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=os.environ | environment)
    return [time.monotonic() - began, read_cpu_seconds() - before]


def read_cpu_seconds() -> float:
    """Return the CPU seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def list_fingerprints(store: str) -> list[str]:
    """Return the fingerprints of the complete stages of a store."""
    from flows.runner.store import Store

    return sorted(manifest["fingerprint"] for manifest in Store(store).list_manifests())


def measure(chosen: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Return the medians of both and their ratio."""
    from tests.s3_server import BUCKET, serve_s3

    local, remote = [], []
    with serve_s3(folder / "s3") as server:
        environment = server.environment() | {"AMAZON_ELECTRA_STATE": str(folder / "state")}
        for number in range(chosen.rounds):
            here, there = str(folder / f"local-{number}"), f"s3://{BUCKET}/run-{number}"
            local.append(run_graph(here, chosen, {}))
            remote.append(run_graph(there, chosen, environment))
        os.environ.update(environment)
        is_same = list_fingerprints(here) == list_fingerprints(there)
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
        "same_fingerprints": is_same,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reviews", type=int, default=4000, help="(default: 4000)")
    parser.add_argument("--steps", type=int, default=200, help="of pre-training (default: 200)")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default: 3)")
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
