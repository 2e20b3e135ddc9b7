"""What going on training a published encoder for more and more tokens is worth, by fine-tuning.

    python tests/bench/adaptation_curve.py --encoder DIR --corpus DIR --shards DIR
    [--tokens 3000000 10000000 30000000] [--tasks polarity stars] [--seeds 0 1 2] [--batch 16]
    [--ranks 1] [--processes 1] [--set FIELD=VALUE …] [--finetuning FIELD=VALUE …] [--work DIR]
    [--json]

The encoder is trained once for each number of tokens, by the recipe that `--start-from` chooses.
All of them and the published encoder are fine-tuned on 200 balanced labels as a published encoder
is by default; accuracy is on 1,000 balanced test reviews, or more with `--finetuning n_test=…`. The
interval of a difference to the published encoder holds the fine-tuning seeds and the reviews, p is
corrected for all comparisons of the table (Holm). What is finished in `--work` is not made again,
and a training that was ended goes on. MiniLM (6 layers of 384) trains on some 2,000 tokens in a CPU
second of an AMD EPYC in bf16; a fine-tuning takes 65 of them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.evaluation import metrics
from model.evaluation.predictions import Predictions, read_predictions
from model.evaluation.significance import compare_arms, correct_comparisons
from model.pretraining.input.sequences import Shards
from model.recipes import RECIPES

FINETUNING = {
    "n_train": "200",
    "n_dev": "200",
    "n_test": "1000",
    "sampling": "balanced",
    "balanced_test": "true",
    **RECIPES["sample"].finetuning_of_published,
}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, required=True, help="the published encoder")
    parser.add_argument("--corpus", type=Path, required=True, help="labels of the tasks")
    parser.add_argument("--shards", type=Path, required=True, help="made with its vocabulary")
    parser.add_argument("--tokens", type=int, nargs="+", default=[3_000_000, 10_000_000])
    parser.add_argument("--tasks", nargs="+", default=["polarity", "stars"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of fine-tuning")
    parser.add_argument("--batch", type=int, default=16, help="sequences (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=1, help="processes of pre-training")
    parser.add_argument("--processes", type=int, default=1, help="fine-tunings at the same time")
    parser.add_argument("--set", nargs="*", default=[], help="more settings of pre-training")
    parser.add_argument("--finetuning", nargs="*", default=[], help="its settings, instead")
    parser.add_argument("--work", help="keep everything in this folder")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="adaptation-curve-") as scratch:
        rows = measure_curve(args, Path(args.work or scratch))
    print(json.dumps({"rows": rows}) if args.json else render_table(rows, args.tasks))


def measure_curve(args: argparse.Namespace, work: Path) -> list[Row]:
    """Return a row for the published encoder and one for each number of tokens."""
    rows: list[Row] = [{"tokens": 0, "folder": str(args.encoder)}]
    for tokens in args.tokens:
        steps = max(1, round(tokens / (args.batch * Shards.open(args.shards).max_length)))
        run = work / f"pretraining-{steps}"
        words = ["--shards", args.shards, "--start-from", args.encoder, "--recipe", "small"]
        words += ["--steps", steps, "--threads", 1, "--processes", args.ranks]
        result = run_job("model.pretrain", run, words, [f"batch={args.batch}", *args.set])
        found = {name: result[name] for name in ("tokens", "cpu_seconds")}
        trained = next(p for name in ("encoder", "discriminator") if (p := run / name).is_dir())
        rows.append(found | {"folder": str(trained)})
    compared = []
    for task in args.tasks:
        cells = [(task, row, seed) for row in rows for seed in args.seeds]
        with ThreadPoolExecutor(args.processes) as pool:
            each = list(pool.map(lambda cell: finetune(args, work, *cell), cells))
        by_row = [each[i : i + len(args.seeds)] for i in range(0, len(each), len(args.seeds))]
        for row, predicted in zip(rows, by_row, strict=True):
            accuracies = [metrics.compute_metric("accuracy", one) for one in predicted]
            row[task] = {"accuracy": mean(accuracies), "by_seed": accuracies}
            found = compare_arms(metrics.METRICS["accuracy"], predicted, by_row[0])
            compared += [] if row is rows[0] else [(row[task], found)]
    independent = len(args.tasks) * (len(rows) - 1)
    corrected = correct_comparisons([found for _, found in compared], independent)
    for (one, _), found in zip(compared, corrected, strict=True):
        for name in ("difference", "low", "high", "p", "p_holm"):
            one[name] = getattr(found, name)
    return rows


def finetune(args: argparse.Namespace, work: Path, task: str, row: Row, seed: int) -> Predictions:
    """Return the predictions on test of one fine-tuning."""
    cell = work / "finetuned" / f"{Path(row['folder']).parent.name}-{task}-{seed}"
    words = ["--encoder", row["folder"], "--task", task, "--data", args.corpus, "--seed", seed]
    words += ["--recipe", "sample", "--evaluation", cell / "test"]
    settings = [f"{name}={value}" for name, value in FINETUNING.items()]
    run_job("model.finetune", cell, words, [*settings, *args.finetuning])
    return read_predictions(cell / "test" / "predictions.parquet")


def run_job(module: str, output: Path, words: list[Any], settings: list[str]) -> Row:
    """Return the result of a job, run unless it was finished before."""
    kept = output.with_name(output.name + ".json")
    if not kept.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", module, "--output", output, *words]
        command += [word for setting in settings for word in ("--set", setting)]
        done = subprocess.run(
            [str(word) for word in command],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        kept.write_text(done.stdout.splitlines()[-1])
    result: Row = json.loads(kept.read_text())
    return result


def render_table(rows: list[Row], tasks: list[str]) -> str:
    """Return the rows as Markdown; p is corrected."""
    names = ["tokens", "CPU s", *(name for task in tasks for name in (task, "difference"))]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        cells = [f"{row['tokens'] / 1e6:.2f} M", f"{row.get('cpu_seconds', 0):.0f}"]
        for found in (row[task] for task in tasks):
            told = "–"
            if "p_holm" in found:
                ends = (100 * found[name] for name in ("difference", "low", "high"))
                told = "{:+.1f} ({:+.1f} to {:+.1f}, p = {:.2g})".format(*ends, found["p_holm"])
            cells += [f"{100 * found['accuracy']:.1f}", told]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
