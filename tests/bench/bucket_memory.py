"""Memory that a worker takes to search one bucket of held-out runs, of drawn ones.

    python tests/bench/bucket_memory.py [--runs 4194304 7000000]

A bucket has 4,194,304 at most until there are 1,024 buckets; of 571.5 million reviews, with 12.5
held-out runs for each, it has 7 million (beam_jobs/deduplication/held_out_matches.py).
"""

import argparse
import json
import os
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.deduplication import buckets, held_out, held_out_matches
from beam_jobs.deduplication.index_files import RUN

UNITS, REVIEWS = 100, 80_000
RUNS_OF_UNIT = 16_000
"""Of the reviews that are compared, in one bucket of one unit."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, nargs="+", default=[1 << 22, 7_000_000])
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [{"runs": runs, "megabytes": measure_bucket(runs)} for runs in args.runs]
    lines = [f"{row['runs']:>10,} runs {row['megabytes']:>8} MB" for row in rows]
    print(json.dumps(rows) if args.json else "\n".join(lines))


def measure_bucket(runs: int) -> int:
    """Return by how many MB the search of a bucket makes a process larger than it was before."""
    with tempfile.TemporaryDirectory() as folder:
        writer = os.fork()  # what it takes to draw the runs is not in the search's memory
        if not writer:
            counts = [write_unit(Path(folder), f"{unit:03d}", runs) for unit in range(UNITS)]
            Path(folder, "counts.json").write_text(json.dumps(counts))
            os._exit(0)
        os.waitpid(writer, 0)
        searcher = os.fork()
        if not searcher:
            counts = json.loads(Path(folder, "counts.json").read_text())
            before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            held_out_matches.write_matches((0, 1, 1), folder, folder, counts, (), ())
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            Path(folder, "megabytes").write_text(str((peak - before) // 1_000_000))
            os._exit(0)
        os.waitpid(searcher, 0)
        return int(Path(folder, "megabytes").read_text())


def write_unit(folder: Path, name: str, runs: int) -> dict:
    """Leave the runs of a unit as the first pass does, all of one bucket; return its counts."""
    rng = np.random.default_rng(int(name))
    counts = {"unit": name, "dump": 0, "prepared": REVIEWS}
    for kind, rows, count in (
        ("heldout", held_out.HELD_RUN, runs // UNITS),
        ("runs", RUN, RUNS_OF_UNIT),
    ):
        drawn = np.zeros(count, rows)
        drawn["run"] = np.sort(rng.integers(0, 1 << 63, count, np.uint64) << np.uint64(1))
        drawn["text"] = rng.integers(0, REVIEWS, count)
        (folder / f"{name}.{kind}").write_bytes(drawn.tobytes())
        counts[kind] = buckets.encode_starts(drawn["run"])
    return counts


if __name__ == "__main__":
    main()
