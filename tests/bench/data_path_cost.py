"""What the data path would cost on Dataflow, or on a Flink cluster of spot machines, from measured
figures: machines, hours and dollars, as Markdown.

    python tests/bench/data_path_cost.py --reviews_per_cpu_second 9000 [--flink]

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
- nothing but counts and row numbers is shuffled, so shuffle costs nothing; storage and egress are
not in it;
- Flink costs `--cpu_ratio` of the local engine's CPU seconds (tests/bench/flink_cluster.py), and
has one machine of one vCPU more, on demand, for JobManager and job server;
- its machines cost `--spot_share` of n1's list price on demand in us-central1
(cloud.google.com/compute/vm-instance-pricing, noted 2026-11: check it): Google names discounts of
60 to 91% for spot machines, which change;
- what a spot machine that is taken away had begun is done again: not in it.
"""

import argparse
from dataclasses import dataclass

DOLLARS = {"vcpu": 0.056, "gb": 0.003557, "disk_gb": 0.000054}  # an hour
ON_DEMAND = {"machine_vcpu": 0.0316, "machine_gb": 0.0042}  # n1, an hour
GB_PER_VCPU, DISK_GB_PER_WORKER, VCPUS_PER_WORKER = (
    3.75,
    25,
    1,
)  # n1-standard-1, Dataflow's default for batch
BYTES_PER_REVIEW = 800  # of JSON, unpacked; the real reviews of 2018 at hand have 660 to 830
ORIGINAL = (385, 770)  # reviews per CPU second: 233.1 million on 84 CPUs in one to two hours


@dataclass(frozen=True)
class Release:
    name: str
    reviews: float
    largest_file: float  # reviews in its largest gz


RELEASES = (
    Release("2018, 233.1 million", 233.1e6, 51.3e6),  # Books (nijianmo.github.io/amazon)
    Release(
        "2023, 571.5 million", 571.5e6, 67.4e6
    ),  # Home_and_Kitchen (amazon-reviews-2023.github.io)
)


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
    option("--flink", action="store_true", help="the table of a Flink cluster instead")
    option(
        "--cpu_ratio",
        type=float,
        default=1.3,
        help="CPU seconds on Flink against the local engine (default 1.3)",
    )
    option("--spot_share", type=float, default=0.4, help="of the price on demand (default 0.4)")
    for name, dollars in (DOLLARS | ON_DEMAND).items():
        option(
            f"--{name}_dollars", type=float, default=dollars, help=f"an hour (default {dollars})"
        )
    return parser.parse_args(argv)


def table(args: argparse.Namespace) -> str:
    rate = args.reviews_per_cpu_second * args.vcpu_speed / (args.cpu_ratio if args.flink else 1)
    machines = "slots (1 vCPU)" if args.flink else "machines (1 vCPU)"
    lines = [
        f"At {rate:,.0f} reviews per vCPU second (the original: {ORIGINAL[0]}–{ORIGINAL[1]}):",
        "",
        f"| dump | vCPU hours of work | {machines} | hours | dollars |",
        "|---|---|---|---|---|",
    ]
    for release in RELEASES:
        for vcpus in args.vcpus:
            work, hours = estimate_hours(release, vcpus, rate, args)
            dollars = hours * sum_prices(vcpus, args)
            lines.append(f"| {release.name} | {work:.1f} | {vcpus} | {hours:.2f} | {dollars:.2f} |")
    return "\n".join(lines)


def estimate_hours(
    release: Release, vcpus: int, rate: float, args: argparse.Namespace
) -> tuple[float, float]:
    """Return vCPU hours of work, and hours of the clock."""
    work = release.reviews / rate / 3600
    alone = release.largest_file * BYTES_PER_REVIEW / 1e6 / args.recut_mb_per_second / 3600
    return work, args.startup_minutes / 60 + alone + work / vcpus


def sum_prices(vcpus: int, args: argparse.Namespace) -> float:
    """Return the dollars of an hour of the machines."""
    disk = args.disk_gb_dollars * DISK_GB_PER_WORKER / VCPUS_PER_WORKER
    if not args.flink:
        return vcpus * (args.vcpu_dollars + args.gb_dollars * GB_PER_VCPU + disk)
    machine = args.machine_vcpu_dollars + args.machine_gb_dollars * GB_PER_VCPU
    return vcpus * (machine * args.spot_share + disk) + machine + disk


if __name__ == "__main__":
    print(table(parse()))
