"""What the data path would cost on Dataflow, or on a Flink cluster of spot machines, from measured
figures: machines, hours, requests and dollars, as Markdown.

    python tests/bench/data_path_cost.py --reviews_per_cpu_second 9000 [--flink | --both]

The rate is `large_reviews_per_cpu_second` of tests/bench/data_path.py (both jobs, Beam included).
Nothing here has been run on Dataflow, nor on rented machines. All else is an assumption with an
option of its own:

- prices are list prices of batch workers in us-central1 (cloud.google.com/dataflow/pricing), noted
2026-11: check them;
- a vCPU does `--vcpu_speed` of the CPU on which the rate was measured;
- machines are paid for from the first minute, `--startup_minutes` of which go before they work;
- the largest packed file of the dump is re-cut by one worker while the others do the rest of the
dump, but in the worst
  case, counted here, they wait for it;
- the searches for duplicates and for near copies of dev and test reviews read a stretch of each
unit's files for each of 128 parts (beam_jobs/deduplication/buckets.py): each takes
`--read_cpu_ms` (tests/bench/ranged_reads.py) and a sixteenth of `--store_latency_ms`, as 16 are
under way at a time, and no more workers than there are parts search, `--search_share` of the work;
- requests cost the same at S3 and at Cloud Storage (aws.amazon.com/s3/pricing,
cloud.google.com/storage/pricing, noted 2026-11): reads `--get_dollars`, writes `--put_dollars` a
thousand; a unit's other files take `--other_reads` and `--other_writes`;
- the graph's own shuffle has counts and row numbers alone, and costs nothing; egress is not in it,
nor storage: the 1.4 kB a review that the work folder takes for an hour cost a cent or two;
- Flink costs `--cpu_ratio` of the local engine's CPU seconds (tests/bench/flink_cluster.py), and
has one machine of one vCPU more, on demand, for JobManager and job server;
- its machines cost `--spot_share` of n1's list price on demand in us-central1
(cloud.google.com/compute/vm-instance-pricing, noted 2026-11: check it): Google names discounts of
60 to 91% for spot machines, which change;
- what a spot machine that is taken away had begun is done again: not in it.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.deduplication.buckets import MAX_PARTS, count_buckets
from beam_jobs.deduplication.exact_duplicates import BUCKET_ROWS
from beam_jobs.deduplication.held_out_matches import BUCKET_RUNS
from beam_jobs.job.storage import READS_AT_ONCE
from beam_jobs.reading.work_units import MAX_UNIT_BYTES

DOLLARS = {"vcpu": 0.056, "gb": 0.003557, "disk_gb": 0.000054}  # an hour
ON_DEMAND = {"machine_vcpu": 0.0316, "machine_gb": 0.0042}  # n1, an hour
REQUESTS = {"get": 0.0004, "put": 0.005}  # a thousand
GB_PER_VCPU, DISK_GB_PER_WORKER, VCPUS_PER_WORKER = (
    3.75,
    25,
    1,
)  # n1-standard-1, Dataflow's default for batch
BYTES_PER_REVIEW = 800  # of JSON, unpacked; the real reviews of 2018 at hand have 660 to 830
HELD_RUNS_PER_REVIEW = 12.5  # of dev and test reviews, for each of the 79,268 real reviews at hand
SEARCH_READS, WRITE_READS = 3, 2
"""Stretches for each unit and part: hashes, runs and held-out runs; matches and where they begin.
"""
ORIGINAL = (385, 770)  # reviews per CPU second: 233.1 million on 84 CPUs in one to two hours


@dataclass(frozen=True)
class Release:
    name: str
    reviews: float
    largest_file: float  # reviews in its largest gz

    @property
    def units(self) -> float:
        return self.reviews * BYTES_PER_REVIEW / MAX_UNIT_BYTES

    @property
    def parts(self) -> int:
        """Return how many parts share each of the searches."""
        reviews = int(self.reviews)
        of_texts = count_buckets(reviews, BUCKET_ROWS, reviews)
        of_runs = count_buckets(int(reviews * HELD_RUNS_PER_REVIEW), BUCKET_RUNS, reviews)
        return min(MAX_PARTS, of_texts, of_runs)


RELEASES = (
    Release("2018, 233.1 million", 233.1e6, 51.3e6),  # Books (nijianmo.github.io/amazon)
    Release(
        "2023, 571.5 million", 571.5e6, 67.4e6
    ),  # Home_and_Kitchen (amazon-reviews-2023.github.io)
)


@dataclass(frozen=True)
class Estimate:
    """What one dump takes on so many vCPUs."""

    work: float  # vCPU hours
    requests: float
    hours: float  # of the clock
    machine_dollars: float
    request_dollars: float

    @property
    def dollars(self) -> float:
        return self.machine_dollars + self.request_dollars


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--reviews_per_cpu_second", type=float, required=True)
    option(
        "--vcpus",
        type=int,
        nargs="+",
        default=[16, 84, 256],
        help="machines of one vCPU (default: 16 84 256)",
    )
    option(
        "--vcpu_speed",
        type=float,
        default=1.0,
        help="default 1; 0.6 for two hyper-threads of one busy core",
    )
    option(
        "--startup_minutes", type=float, default=4.0, help="boot, container, packages (default 4)"
    )
    option(
        "--recut_mb_per_second",
        type=float,
        default=100.0,
        help="of unpacked text, into Cloud Storage (default 100)",
    )
    engine = parser.add_mutually_exclusive_group()
    engine.add_argument("--flink", action="store_true", help="the table of a Flink cluster instead")
    engine.add_argument("--both", action="store_true", help="one table of both")
    option(
        "--cpu_ratio",
        type=float,
        default=1.3,
        help="CPU seconds on Flink against the local engine (default 1.3)",
    )
    option("--spot_share", type=float, default=0.4, help="of the price on demand (default 0.4)")
    option("--search_share", type=float, default=0.25, help="of the CPU seconds (default 0.25)")
    option("--read_cpu_ms", type=float, default=1.6, help="of a stretch of a file (default 1.6)")
    option("--store_latency_ms", type=float, default=30.0, help="of a request (default 30)")
    option("--other_reads", type=float, default=40, help="for each unit (default 40)")
    option("--other_writes", type=float, default=50, help="for each unit (default 50)")
    for name, dollars in (DOLLARS | ON_DEMAND).items():
        option(
            f"--{name}_dollars", type=float, default=dollars, help=f"an hour (default {dollars})"
        )
    for name, dollars in REQUESTS.items():
        option(
            f"--{name}_dollars", type=float, default=dollars, help=f"a thousand (default {dollars})"
        )
    return parser.parse_args(argv)


def table(args: argparse.Namespace) -> str:
    if args.both:
        return render_both(args)
    rate = find_rate(args, args.flink)
    machines = "slots (1 vCPU)" if args.flink else "machines (1 vCPU)"
    lines = [
        f"At {rate:,.0f} reviews per vCPU second (the original: {ORIGINAL[0]}–{ORIGINAL[1]}):",
        "",
        f"| dump | vCPU hours of work | {machines} | hours | dollars | of them requests |",
        "|---|---|---|---|---|---|",
    ]
    for release in RELEASES:
        for vcpus in args.vcpus:
            found = estimate(release, vcpus, args, args.flink)
            lines.append(
                f"| {release.name} | {found.work:.1f} | {vcpus} | {found.hours:.2f} | "
                f"{found.dollars:.2f} | {found.request_dollars:.2f} |"
            )
    return "\n".join(lines)


def render_both(args: argparse.Namespace) -> str:
    """Return one table of both engines."""
    lines = [
        "| dump | slots or machines (1 vCPU) | hours on Flink, on Dataflow | dollars on Flink on "
        "spot machines | on Dataflow | of them requests | million requests |",
        "|---|---|---|---|---|---|---|",
    ]
    for release in RELEASES:
        for vcpus in args.vcpus:
            flink, dataflow = (estimate(release, vcpus, args, on) for on in (True, False))
            lines.append(
                f"| {release.name} | {vcpus} | {flink.hours:.2f}, {dataflow.hours:.2f} | "
                f"{flink.dollars:.2f} | {dataflow.dollars:.2f} | {flink.request_dollars:.2f} | "
                f"{flink.requests / 1e6:.1f} |"
            )
    return "\n".join(lines)


def find_rate(args: argparse.Namespace, on_flink: bool) -> float:
    """Return reviews per vCPU second, without the stretches that are read."""
    return args.reviews_per_cpu_second * args.vcpu_speed / (args.cpu_ratio if on_flink else 1)


def estimate(release: Release, vcpus: int, args: argparse.Namespace, on_flink: bool) -> Estimate:
    """Return what a dump takes; no more workers search than there are parts."""
    searchers = min(vcpus, release.parts)
    work = release.reviews / find_rate(args, on_flink) / 3600
    stretches = release.units * release.parts / 3600e3  # of each kind, times hours in a millisecond
    cpu = args.read_cpu_ms / args.vcpu_speed
    seconds = cpu + args.store_latency_ms / READS_AT_ONCE
    alone = release.largest_file * BYTES_PER_REVIEW / 1e6 / args.recut_mb_per_second / 3600
    searching = args.search_share * work + SEARCH_READS * stretches * seconds
    rest = (1 - args.search_share) * work + WRITE_READS * stretches * seconds
    hours = args.startup_minutes / 60 + alone + searching / searchers + rest / vcpus
    reads = (SEARCH_READS + WRITE_READS) * release.units * release.parts
    reads, writes = reads + args.other_reads * release.units, args.other_writes * release.units
    return Estimate(
        work + (SEARCH_READS + WRITE_READS) * stretches * cpu,
        reads + writes,
        hours,
        hours * sum_prices(vcpus, args, on_flink),
        (reads * args.get_dollars + writes * args.put_dollars) / 1000,
    )


def sum_prices(vcpus: int, args: argparse.Namespace, on_flink: bool) -> float:
    """Return the dollars of an hour of the machines."""
    disk = args.disk_gb_dollars * DISK_GB_PER_WORKER / VCPUS_PER_WORKER
    if not on_flink:
        return vcpus * (args.vcpu_dollars + args.gb_dollars * GB_PER_VCPU + disk)
    machine = args.machine_vcpu_dollars + args.machine_gb_dollars * GB_PER_VCPU
    return vcpus * (machine * args.spot_share + disk) + machine + disk


if __name__ == "__main__":
    print(table(parse()))
