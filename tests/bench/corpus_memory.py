"""What one worker of the corpus job holds at most, for dumps of several sizes.

    python tests/bench/corpus_memory.py --dump 'dumps/*.json.gz' --copies 10 51 102 [--json]

A dump of each size is written first: the given one and perturbed copies of it. Own memory is what
the process has to itself, mapped memory the pages of files, which workers share and the system may
take back: code, and the filter of the held-out reviews' runs. Looked at twice a second.
"""

import argparse
import glob
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.bench.data_path_parts import dumps

ROOT = Path(__file__).parents[2]
SAMPLE_SECONDS = 0.5


def measure_job(folder: Path, output: Path) -> dict[str, float]:
    """Run the corpus job in one process on the dump of a folder; return what it held at most."""
    words = ["--input", folder / "*.json.gz", "--output", output, "--direct_num_workers", 1]
    command = [sys.executable, "-m", "beam_jobs.corpus_job", *words]
    own = mapped = 0.0
    with (
        open(output.with_suffix(".json"), "w+") as printed,
        psutil.Popen([str(word) for word in command], cwd=ROOT, stdout=printed) as job,
    ):
        while job.poll() is None:
            memory = job.memory_info()
            own = max(own, (memory.rss - memory.shared) / 1e6)
            mapped = max(mapped, memory.shared / 1e6)
            time.sleep(SAMPLE_SECONDS)
        if job.returncode:
            raise SystemExit(f"the corpus job failed with exit code {job.returncode}: see above")
        printed.seek(0)
        counts = json.loads(printed.read().splitlines()[-1])
    return {
        "reviews": counts["read"],
        "reviews_a_unit": round(counts["read"] / counts["units"]),
        "own_megabytes": round(own),
        "mapped_megabytes": round(mapped),
        "cpu_seconds": counts["cpu_seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dump", required=True, help="files of a dump, as a pattern")
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 10], help="of each review")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    rows = []
    for copies in chosen.copies:
        with tempfile.TemporaryDirectory(prefix="corpus-memory-") as scratch:
            folder = Path(scratch)
            dumps.write(sorted(glob.glob(chosen.dump)), folder / "dump", None, copies)
            rows.append({"copies": copies, **measure_job(folder / "dump", folder / "corpus")})
        print(*(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    if chosen.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
