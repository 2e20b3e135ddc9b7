"""What pre-training tokens buy on the sample: in-domain against random, polarity and stars, paired
over seeds.

    python tests/bench/small_budget.py [--steps 500 1000 2000] [--seeds 0 1 2] [--input DUMP…]
    [--json]

Each budget is a run of its own, to the end of its learning-rate schedule, with the tiny preset;
both arms get the preset's labels, pooling, epochs and grid of learning rates, chosen on dev. Takes
about 3 CPU minutes for 2,000 steps and 15 CPU seconds for each of arms × tasks × seeds. `--input`
takes any dump: on real reviews expect no gain at such budgets.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.job.guard import GRACE_SECONDS, guard_command
from beam_jobs.sample.sample_dump import write_sample
from model.evaluation import metrics
from model.evaluation.predictions import read_predictions
from model.evaluation.significance import Comparison, compare_arms

TASKS = ("polarity", "stars")
VOCABULARY, LENGTH = 4_000, 128  # the tiny preset's


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory(prefix="small-budget-") as scratch:
        rows = measure(args, Path(args.work or scratch))
    print(json.dumps(rows) if args.json else table(rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps",
        type=int,
        nargs="+",
        default=[500, 1_000, 2_000],
        help="budgets (default: %(default)s)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        help="of fine-tuning (default: %(default)s)",
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument(
        "--reviews", type=int, default=20_000, help="of the sample (default: %(default)s)"
    )
    parser.add_argument("--input", nargs="+", help="another dump instead of the sample")
    parser.add_argument(
        "--work", help="folder to keep everything in; what is there is not made again"
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(args: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    dump = args.input or [str(work / "sample.json.gz")]
    if not args.input and not Path(dump[0]).exists():
        write_sample(dump[0], args.reviews, 0)
    corpus, vocabulary, shards = work / "corpus", work / "vocabulary", work / "shards"
    job("beam_jobs.corpus_job", corpus, "--input", *dump)
    job("model.vocabulary", vocabulary, "--corpus", corpus, "--size", VOCABULARY)
    job(
        "beam_jobs.shards_job",
        shards,
        "--corpus",
        corpus,
        "--vocabulary",
        vocabulary,
        "--max_length",
        LENGTH,
    )
    return [row for steps in args.steps for row in budget(args, work, corpus, shards, steps)]


def budget(
    args: argparse.Namespace, work: Path, corpus: Path, shards: Path, steps: int
) -> list[dict[str, Any]]:
    """A row per task. The random arm is the same for every budget."""
    run = work / f"pretraining-{steps}"
    told = job("model.pretrain", run, "--shards", shards, "--preset", "tiny", "--steps", steps)
    shape = run / "discriminator"
    rows = []
    for task in args.tasks:
        trained = [predictions(work, corpus, f"{steps}", shape, task, seed) for seed in args.seeds]
        random = [predictions(work, corpus, "random", shape, task, seed) for seed in args.seeds]
        accuracy = metrics.METRICS["accuracy"]
        means = {
            name: sum(metrics.compute_metric("accuracy", arm) for arm in arms) / len(arms)
            for name, arms in (("in_domain", trained), ("random", random))
        }
        difference = compare_arms(accuracy, trained, random)
        rows.append(row(steps, told, task, means, difference))
    return rows


def row(
    steps: int, told: dict[str, Any], task: str, means: dict[str, float], difference: Comparison
) -> dict[str, Any]:
    return {
        "steps": steps,
        "tokens": told["tokens"],
        "cpu_seconds": told["cpu_seconds"],
        "generator_loss": told["generator_loss"],
        "discriminator_loss": told["discriminator_loss"],
        "task": task,
        **means,
        "difference": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "examples": difference.examples,
        "seeds": difference.seeds,
    }


def predictions(work: Path, corpus: Path, arm: str, shape: Path, task: str, seed: int) -> Any:
    """Of a fine-tuned cell on test."""
    cell = work / f"{task}-{arm}-{seed}"
    start = ["random", "--architecture", shape] if arm == "random" else [shape]
    about = [
        "--task",
        task,
        "--data",
        corpus,
        "--preset",
        "tiny",
        "--seed",
        seed,
        "--evaluation",
        cell / "test",
    ]
    job("model.finetune", cell, "--encoder", *start, *about)
    return read_predictions(cell / "test" / "predictions.parquet")


def job(module: str, output: Path, *arguments: object) -> dict[str, Any]:
    """Return the result of a job, run unless it was finished before. It ends with this process."""
    kept = output.with_name(output.name + ".json")
    if not kept.exists():
        command = [sys.executable, "-m", module, "--output", str(output), *map(str, arguments)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"} if module == "model.finetune" else None
        with subprocess.Popen(
            guard_command(command, GRACE_SECONDS),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        ) as guarded:
            assert guarded.stdout
            printed = guarded.stdout.read()
        if guarded.returncode:
            sys.exit(f"{' '.join(command)} ended with {guarded.returncode}")
        kept.write_text(printed.splitlines()[-1])
    result: dict[str, Any] = json.loads(kept.read_text())
    return result


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| tokens | CPU s | generator | discriminator | task | in-domain | random "
        "| difference [95%] |",
        "|---" * 8 + "|",
    ]
    for r in rows:
        losses = f"{r['generator_loss']:.2f} | {r['discriminator_loss']:.3f}"
        gain = f"{r['difference']:+.3f} [{r['low']:+.3f}, {r['high']:+.3f}]"
        arms = f"{r['in_domain']:.3f} | {r['random']:.3f}"
        lines.append(
            f"| {r['tokens'] / 1e6:.2f} M | {r['cpu_seconds']:.0f} | {losses} | {r['task']} "
            f"| {arms} | {gain} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
