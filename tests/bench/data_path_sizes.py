"""What grows with a dump while its corpus is made, by formula: the memory of a worker, and the
seconds in which only one of them works.

    python tests/bench/data_path_sizes.py [--reviews 233.1e6 571.5e6 10e9] [--files 10000]

Reviews of 800 bytes in a store. All limits are the code's own; what was measured stands below with
its source. A worker's memory is that of a job of 4 million reviews, whose buckets are full already,
or that of matching a full bucket of held-out n-grams, and what grows beyond it.
"""

import argparse
import pickle
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from amazon_electra.beam_jobs.config import MAX_SAMPLE_BYTES
from amazon_electra.beam_jobs.core.storage import PATHS_AT_ONCE
from amazon_electra.beam_jobs.deduplication import buckets, exact, held_out
from amazon_electra.beam_jobs.reading.work_units import (
    PreparedUnit,
    choose_unit_bytes,
    measure_units,
)

REVIEW_BYTES = 800
"""Of a record of the 2018 release."""
REQUEST_SECONDS = max(0.002, 0.040 / PATHS_AT_ONCE)
"""CPU time of a request (storage.READS_AT_ONCE), or its share of the wait for an answer."""
REQUESTS_A_FILE = 1
"""Before the first unit: its first bytes. Its version comes with the listing."""
HELD_OUT_RUNS = 12.5
"""For each review of the dump, with the default split (held_out.BUCKET_RUNS)."""
WORKER_BYTES = 0.91e9
"""A Python worker's with 4 million reviews (docs/performance.md)."""
MATCH_BYTES = 0.70e9
"""A process's that has built `held_out.HeldOutNGrams` of 4.2 million n-grams."""
OBJECT_BYTES = 670
"""Of a unit's size in memory, the paths of two of its files and its places among all (tracemalloc,
20,000 units)."""
PUNKT_BYTES_A_SECOND = 1.4e6
"""Of the sample (corpus.plan.MIN_SAMPLE_BYTES: a quarter of the reviews' own speed)."""


def measure_counts() -> tuple[int, int]:
    """Return the pickled bytes of the counts of a unit like those of a release, and of its size."""
    unit = PreparedUnit(
        "0033-00123",
        80_000,
        file="s3://bucket/amazon-2018/Clothing_Shoes_and_Jewelry.json.gz",
        source="Clothing_Shoes_and_Jewelry",
        read=80_321,
        lines=80_321,
        dropped={"no text": 321},
        notes={"emails_masked": 5, "phones_masked": 7},
        ratings={f"{n}.0 of 5": 16_000 for n in range(1, 6)},
        held_out_runs=1_000_000,
    )
    units = [replace(pickle.loads(pickle.dumps(unit)), unit=f"0033-{n:05d}") for n in range(1000)]
    counts, sizes = (len(pickle.dumps(found)) // 1000 for found in (units, measure_units(units)))
    return counts, sizes


def compute_sizes(reviews: float, files: int) -> dict[str, float]:
    """Return the sizes of a dump of so many reviews in so many files."""
    total = int(reviews * REVIEW_BYTES)
    units = max(files, -(-total // choose_unit_bytes(total)))
    counts, sizes = (units * size for size in measure_counts())
    of = buckets.count_buckets(int(reviews), exact.BUCKET_ROWS, int(reviews))
    of_held = buckets.count_buckets(int(reviews * HELD_OUT_RUNS), held_out.BUCKET_RUNS)
    starts = len(buckets.KINDS) * (buckets.MAX_BUCKETS + 1) * units * buckets.STARTS.itemsize
    places = (buckets.MAX_BUCKETS // buckets.MAX_PARTS + 1) * units * buckets.STARTS.itemsize
    grown = sizes + units * OBJECT_BYTES + 3 * places
    blocks = reviews / held_out.BLOCK_ROWS + units / 2
    matching = MATCH_BYTES + 2 * 8 * blocks
    return {
        "reviews": reviews,
        "units": units,
        "counts, MB": counts / 1e6,
        "sizes, MB": sizes / 1e6,
        "all.starts, MB": starts / 1e6,
        "rows of a bucket, million": reviews / of / 1e6,
        "runs of a bucket, million": reviews * HELD_OUT_RUNS / of_held / 1e6,
        "a worker, GB": (max(WORKER_BYTES, matching) + grown) / 1e9,
        "look at the files, s": files * REQUESTS_A_FILE * REQUEST_SECONDS,
        "join starts, s": units * REQUEST_SECONDS,
        "train Punkt, s": units * REQUEST_SECONDS + MAX_SAMPLE_BYTES / PUNKT_BYTES_A_SECOND,
        "add up, s": units * REQUEST_SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reviews", type=float, nargs="+", default=[233.1e6, 571.5e6, 10e9])
    parser.add_argument("--files", type=int, default=10_000)
    args = parser.parse_args()
    rows = [compute_sizes(reviews, args.files) for reviews in args.reviews]
    for name in rows[0]:
        print(
            f"| {name} | "
            + " | ".join(
                f"{row[name]:,.10g}" if row[name] >= 1e4 else f"{row[name]:,.3g}" for row in rows
            )
            + " |"
        )


if __name__ == "__main__":
    main()
