"""The data path measured: dump to shards, against the plain path, a bare process pool, one worker,
one gz file.

    python tests/bench/data_path.py [--input FILE…] [--json] [--scale_reviews 4000000]

Both sides are measured in CPU seconds of all their processes, in turn, imports done beforehand; of
several rounds the median. Speed-up and the time of 8 × the reviews are seconds of the clock, and
want a machine that does nothing else.

ratio_plain             CPU seconds of the plain path (json, NLTK's Punkt, tokenizers, padding to
                        128) / ours with Beam
reviews_per_cpu_second  ours
beam_overhead           CPU seconds with Beam / in a bare process pool with the same units − 1
two_worker_speedup      seconds with one worker / with two
one_gz_ratio            seconds with the dump in one gz file / in eight
scale_time_ratio        seconds for 8 × the reviews / for once
peak_rss_mb             resident memory of all processes together, for 8 × the reviews
"""

import argparse
import glob
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from model import vocabulary as vocabulary_job
from tests.bench import data_path_cost
from tests.bench.data_path_parts import dumps, paths, steps
from tests.bench.data_path_parts.measuring import Measured, measure

TIMES = 8
TARGETS = {
    "ratio_plain": "≥ 2.5, aim 5",
    "reviews_per_cpu_second": "original 385–770",
    "beam_overhead": "≤ 0.12",
    "two_worker_speedup": "≥ 1.8",
    "one_gz_ratio": "≤ 1.15",
    "scale_time_ratio": "≤ 8.4",
    "peak_rss_mb": "< 1500",
}


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory(prefix="data-path-", dir=args.scratch) as folder:
        bench = Bench(Path(folder), args)
        results = bench.run()
    if args.json:
        print(json.dumps(results))
    else:
        print(table(results))


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument(
        "--input", nargs="+", help="a dump of any published format (default: a synthetic one)"
    )
    p.add_argument("--reviews", type=int, help="take this many of the input (default: all)")
    p.add_argument(
        "--rounds", type=int, default=3, help="of the comparison with the plain path (default 3)"
    )
    p.add_argument(
        "--scale_reviews", type=int, default=0, help="of the large dump (default: 8 × the input)"
    )
    p.add_argument(
        "--only",
        nargs="*",
        default=[],
        choices=["plain", "steps", "large"],
        help="parts (default: all)",
    )
    p.add_argument("--scratch", help="folder for dumps and outputs: about 3 × the large dump")
    p.add_argument("--json", action="store_true", help="one line of JSON instead of the table")
    return p.parse_args()


class Bench:
    """Makes the dumps, runs all sides on them and keeps what was measured."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self.folder, self.args = folder, args
        self.results: dict = {}
        self.outputs = 0

    def run(self) -> dict:
        inputs = self.inputs()
        self.once, self.vocabulary = self.folder / "once", self.folder / "vocabulary"
        measure(dumps.write, inputs, self.once, self.args.reviews)
        self.text_field = dumps.text_field([str(self.once)])
        self.reviews = dumps.count([str(self.once)])
        self.results["reviews"] = self.reviews
        measure(self.train)
        parts = self.args.only or ["plain", "steps", "large"]
        if "plain" in parts:
            self.against_plain()
        if "steps" in parts:
            self.by_step()
        if "large" in parts:
            self.on_large_dumps(inputs)
        return self.results

    def inputs(self) -> list[str]:
        if self.args.input:
            found = [
                path for pattern in self.args.input for path in glob.glob(pattern) or [pattern]
            ]
            return sorted(found)
        dumps.sample(self.folder / "sample.json.gz", dumps.SAMPLE_REVIEWS)
        return [str(self.folder / "sample.json.gz")]

    def train(self) -> None:
        """Corpus and vocabulary that both sides share; not measured."""
        paths.corpus_job.run(
            [*paths.corpus_arguments(self.once, self.folder), "--direct_running_mode", "in_memory"]
        )
        arguments = [
            "--corpus",
            str(self.folder / "corpus"),
            "--output",
            str(self.vocabulary),
            "--size",
            "50000",
        ]
        vocabulary_job.run(arguments)

    def against_plain(self) -> None:
        theirs, ours = [], []
        for number in range(self.args.rounds):
            theirs.append(self.plain())
            ours.append(self.with_beam(self.once, workers=1))
            self.say(
                f"round {number + 1}: plain {theirs[-1].cpu_seconds:.1f}, "
                f"ours {ours[-1].cpu_seconds:.1f} CPU s"
            )
        plain, own = (statistics.median(m.cpu_seconds for m in side) for side in (theirs, ours))
        self.results |= {
            "ratio_plain": round(plain / own, 3),
            "reviews_per_cpu_second": round(self.reviews / own, 1),
            "plain_cpu_seconds": round(plain, 2),
            "our_cpu_seconds": round(own, 2),
        }

    def plain(self) -> Measured:
        punkt = self.folder / "corpus" / "punkt.json"
        return measure(
            paths.plain,
            self.once,
            self.text_field,
            punkt,
            self.vocabulary,
            self.folder / "plain.npy",
        )

    def with_beam(self, dump: Path, workers: int) -> Measured:
        return self.measured(paths.with_beam, dump, workers)

    def measured(self, function, dump: Path, workers: int) -> Measured:
        output = self.folder / "output"
        result = measure(function, dump, self.vocabulary, output, workers)
        shutil.rmtree(output)
        return result

    def by_step(self) -> None:
        report, output = self.folder / "steps.json", self.folder / "output"
        measure(steps.by_step, self.once, self.vocabulary, output, report)
        self.results["steps"] = {
            name: round(s / self.reviews * 1e6, 2) for name, s in read(report).items()
        }
        measure(steps.floors, self.once, self.text_field, output / "corpus", report)
        per_review = {
            name: [round(s / self.reviews * 1e6, 2), what]
            for name, (s, what) in read(report).items()
        }
        self.results["floors"] = per_review
        shutil.rmtree(output)

    def on_large_dumps(self, inputs: list[str]) -> None:
        copies = -(-(self.args.scale_reviews or TIMES * self.reviews) // self.reviews)
        large, small, one = self.folder / "large", self.folder / "small", self.folder / "one"
        measure(dumps.write, inputs, large, self.args.reviews, copies)
        measure(dumps.write, inputs, small, self.args.reviews, max(copies // TIMES, 1))
        measure(dumps.join, large, one)
        self.results["large_reviews"] = copies * self.reviews
        once = self.with_beam(small, workers=2)
        self.say(f"{copies * self.reviews // TIMES:,} reviews, two workers: {described(once)}")
        runs = {}
        for name, function, dump, workers in (
            ("with Beam, two workers", paths.with_beam, large, 2),
            ("in a process pool of two", paths.in_a_pool, large, 2),
            ("with Beam, one worker", paths.with_beam, large, 1),
            ("with Beam, two workers, one gz", paths.with_beam, one, 2),
        ):
            runs[name] = self.measured(function, dump, workers)
            self.say(f"{copies * self.reviews:,} reviews, {name}: {described(runs[name])}")
        two, pool, single, one_gz = runs.values()
        self.results |= {
            "beam_overhead": round(two.cpu_seconds / pool.cpu_seconds - 1, 3),
            "two_worker_speedup": round(single.seconds / two.seconds, 3),
            "one_gz_ratio": round(one_gz.seconds / two.seconds, 3),
            "scale_time_ratio": round(two.seconds / once.seconds, 3),
            "peak_rss_mb": round(two.peak_rss_mb),
            "peak_rss_mb_once": round(once.peak_rss_mb),
            "large_reviews_per_cpu_second": round(copies * self.reviews / two.cpu_seconds, 1),
        }

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def read(report: Path) -> dict:
    return json.loads(report.read_text())


def described(run: Measured) -> str:
    return f"{run.cpu_seconds:.1f} CPU s, {run.seconds:.1f} s, {run.peak_rss_mb:.0f} MB"


def table(results: dict) -> str:
    lines = [f"{'':26}{'measured':>12}   wanted"]
    lines += [
        f"{key:26}{results[key]:>12,}   {wanted}"
        for key, wanted in TARGETS.items()
        if key in results
    ]
    if "steps" in results:
        total = sum(results["steps"].values())
        lines += ["", f"{'step':28}{'µs/review':>10}{'share':>8}   the least it could be"]
        for name, cost in results["steps"].items():
            floor, what = results["floors"].get(name, (None, ""))
            least = f"{floor:.2f}: {what}" if floor is not None else ""
            lines.append(f"{name:28}{cost:>10.2f}{cost / total:>8.1%}   {least}")
        lines.append(f"{'all':28}{total:>10.2f}")
    rate = results.get("large_reviews_per_cpu_second") or results.get("reviews_per_cpu_second")
    return "\n".join(lines + (on_paper(rate) if rate else []))


def on_paper(rate: float) -> list[str]:
    """Machines, hours and dollars on Dataflow at the measured rate."""
    arguments = data_path_cost.parse(["--reviews_per_cpu_second", f"{rate}"])
    return ["", "On Dataflow (computed, not run):", data_path_cost.table(arguments)]


if __name__ == "__main__":
    main()
