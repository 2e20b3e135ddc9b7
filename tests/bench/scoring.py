"""How fast a champion labels reviews: `python tests/bench/scoring.py --model DIR --input FILES
[--json]`.

Exports a fine-tuned classifier as the flow `score` does, then scores a dump in one process and in
as many as there are cores. Reviews per second of wall time, start of Beam included, and per CPU
second.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def job(module: str, *words: str) -> tuple[dict[str, Any], float]:
    """Its JSON line, and the CPU seconds of it and all it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", module, *words], check=True, stdout=subprocess.PIPE, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return json.loads(done.stdout), cpu


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", required=True, metavar="DIR", help="a folder made by model.finetune"
    )
    parser.add_argument(
        "--input", required=True, nargs="+", metavar="PATH", help="files of reviews"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job("model.scorer", "--model", chosen.model, "--output", str(folder / "scorer"))
        for workers in dict.fromkeys(chosen.workers):
            output = folder / f"scores-{workers}"
            words = [
                "--scorer",
                str(folder / "scorer"),
                "--input",
                *chosen.input,
                "--output",
                str(output),
            ]
            done, cpu = job("beam_jobs.scoring_job", *words, "--direct_num_workers", str(workers))
            speed = {
                "reviews_per_second": done["reviews_per_second"],
                "per_cpu_second": round(done["scored"] / cpu, 1),
            }
            rows.append({"workers": workers, "scored": done["scored"], **speed})
    for row in rows:
        print(
            json.dumps(row)
            if chosen.json
            else "  ".join(f"{name} {value}" for name, value in row.items())
        )


if __name__ == "__main__":
    main()
