"""What Prefect and the store cost beside the work: `python tests/bench/orchestration.py [--json]`.

A graph of jobs that do nothing, run twice: the first run makes every stage, the second finds them
all. Then the real graph's `--dry-run`, which plans it. A job that does nothing still starts a
Python process, so what orchestration adds is the run's time without that of its jobs, by stage.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.bench.measuring import measure_commands

STAGES = 8
"""Of the toy graph: dump, corpus, pre-training, two cells of two stages side by side, report."""


def measured(store: Path) -> dict[str, Any]:
    """Seconds of a first and of a repeated run of the same graph, in a process that has a server
    already.
    """
    from amazon_electra.flows.servers import prefect_server

    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    prefect_server.connect_prefect(store)

    from amazon_electra.flows.store.store import Store
    from tests.flows.toy_graph import run_toy

    seconds = []
    for _ in range(2):
        began = time.monotonic()
        run_toy(store, {})
        seconds.append(time.monotonic() - began)
    jobs = sum(manifest.get("seconds", 0.0) for manifest in Store(store).list_manifests())
    return {
        "stages": STAGES,
        "first_run_seconds": round(seconds[0], 2),
        "of_which_jobs_seconds": round(jobs, 2),
        "added_seconds_a_stage": round((seconds[0] - jobs) / STAGES, 3),
        "repeated_run_seconds": round(seconds[1], 2),
        "repeated_seconds_a_stage": round(seconds[1] / STAGES, 3),
    }


def whole_graph(store: Path) -> dict[str, float]:
    """Seconds of the command, the best of five, on a store where all is complete."""
    words = [sys.executable, "-m", "amazon_electra.flows.cli.main", "run", "--dump", "sample:600"]
    words += ["--set", "pretraining.steps=20", "--store", str(store)]
    subprocess.run(words, check=True, capture_output=True)
    again = [measure_commands([words], Path.cwd()) for _ in range(5)]
    return {
        "whole_graph_stages": len(list(store.glob("*/*/manifest.json"))),
        "all_complete_seconds": round(min(one.seconds for one in again), 2),
        "all_complete_cpu_seconds": round(min(one.cpu_seconds for one in again), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--whole", action="store_true", help="the real graph too: minutes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole = (
            whole_graph(Path(folder) / "whole") if chosen.whole else {}
        )  # before this process has a server
        found = measured(Path(folder) / "toy") | whole
    table = "\n".join(f"{name:<28}{value}" for name, value in found.items())
    print(json.dumps(found) if chosen.json else table)


if __name__ == "__main__":
    main()
