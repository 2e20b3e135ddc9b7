"""What one long adaptation of a published encoder is worth at several of its steps, by fine-tuning.

    python tests/bench/adaptation_curve.py --encoder DIR --corpus DIR --shards DIR --validation DIR
    [--tokens 30000000] [--at 3000000 10000000] [--shares 0.5] [--drawn_shares 0 0.25 …]
    [--tasks polarity stars] [--seeds 0 1 2] [--draws 0] [--batch 16] [--threads 1] [--ranks 1]
    [--processes 1] [--set FIELD=VALUE …] [--finetuning FIELD=VALUE …] [--work DIR] [--json]

The encoder is trained once, by the recipe that `--start-from` chooses, for as many tokens as the
shards' sequences hold when they are full; a checkpoint is taken after every thirtieth of the steps.
The checkpoints nearest to the tokens of `--at`, and the last one, become encoders with each of the
`--shares` of the published weights put back. All of them and the published encoder are fine-tuned
on 200 balanced labels as a published encoder is by default; accuracy is on 1,000 balanced test
reviews, or more with `--finetuning n_test=…`. A difference to the published encoder is one of this
one pre-training: its interval holds the fine-tuning seeds and the reviews, p is corrected for all
comparisons of the table (Holm).
In the middle of a run its learning rate has not come down yet. With `--draws` N the states of 2,000
train reviews are learned from in N draws of 200, half of them positive, and measured on 1,500
balanced dev reviews; the states of `--drawn_shares` are measured so only. `--ranks` is how many
processes train the encoder, `--processes` how many fine-tunings run at the same time, of one thread
each. What is finished in `--work` is not made again, and a training that was ended goes on. MiniLM
(6 layers of 384) trains on some 2,000 tokens in a CPU second of an AMD EPYC in bf16; a fine-tuning
takes 65 of them.
"""

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from model.evaluation import metrics
from model.evaluation.predictions import Predictions, read_predictions
from model.evaluation.significance import adjust_p_values, compare_arms
from model.presets import PUBLISHED_FINETUNING
from model.pretraining import checkpoint, loop, outputs
from model.pretraining.adaptation.anchor import Anchor
from model.pretraining.adaptation.selection import load_weights
from model.pretraining.input.sequences import Shards
from model.tracking.metrics_log import read_metrics
from tests.bench.adaptation_recipes import (
    compute_half_width,
    draw_labels,
    open_probe,
    open_training,
)
from tests.bench.electra_plateau import format_settings
from tests.bench.small_budget import job

CHECKPOINTS = 30
FINETUNING = {
    "n_train": "200",
    "n_dev": "200",
    "n_test": "1000",
    "sampling": "balanced",
    "balanced_test": "true",
    **PUBLISHED_FINETUNING,
}
PUBLISHED = "published"
Row = dict[str, Any]


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory(prefix="adaptation-curve-") as scratch:
        rows = measure_curve(args, Path(args.work or scratch))
    print(json.dumps({"rows": rows}) if args.json else render_table(rows, args.tasks))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, required=True, help="the published encoder")
    parser.add_argument("--corpus", type=Path, required=True, help="labels")
    parser.add_argument("--shards", type=Path, required=True, help="made with its vocabulary")
    parser.add_argument("--validation", type=Path, required=True, help="shards of the dev split")
    parser.add_argument("--tokens", type=int, default=30_000_000, help="(default: %(default)s)")
    parser.add_argument("--at", type=int, nargs="*", default=[3_000_000, 10_000_000])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5], help="of published ones")
    parser.add_argument("--tasks", nargs="+", default=["polarity", "stars"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of fine-tuning")
    parser.add_argument("--drawn_shares", type=float, nargs="*", default=[], help="only drawn")
    parser.add_argument("--draws", type=int, default=0, help="of 200 labels for a probe")
    parser.add_argument("--batch", type=int, default=16, help="sequences (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of each process of pre-training")
    parser.add_argument("--ranks", type=int, default=1, help="processes of pre-training")
    parser.add_argument("--processes", type=int, default=1, help="fine-tunings at the same time")
    parser.add_argument("--set", nargs="*", default=[], help="more settings of pre-training")
    parser.add_argument("--finetuning", nargs="*", default=[], help="its settings, instead")
    parser.add_argument("--work", help="keep everything in this folder")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure_curve(args: argparse.Namespace, work: Path) -> list[Row]:
    """Return a row for the published encoder and one for each state and share."""
    run, words = work / "pretraining", list_words(args)
    result = job("model.pretrain", run, *words)
    words = ["--output", str(run), *words]
    rows: list[Row] = [{"encoder": PUBLISHED, "tokens": 0, "share": 1.0, "folder": args.encoder}]
    states = choose_checkpoints(run, [*args.at, args.tokens])
    for path in states:
        for share in args.shares:
            rows.append(describe_state(run, path, share, work))
            if not rows[-1]["folder"].exists():
                export_encoder(args, words, result, path, rows[-1])
    add_finetunings(args, rows, work)
    if args.draws:
        rows += [
            describe_state(run, path, share, work) for path in states for share in args.drawn_shares
        ]
        add_draws(args, words, states, rows)
    return [row | {"folder": str(row["folder"])} for row in rows]


def add_finetunings(args: argparse.Namespace, rows: list[Row], work: Path) -> None:
    """Add to each row what fine-tuning says of each task; the first row is what all others are
    compared with, and p is corrected for all those comparisons.
    """
    cells = [(row, seed) for row in rows for seed in args.seeds]
    for task in args.tasks:
        with ThreadPoolExecutor(args.processes) as pool:
            started = [pool.submit(finetune, args, task, row, seed, work) for row, seed in cells]
            found = [one.result() for one in started]
        by_row = [found[i : i + len(args.seeds)] for i in range(0, len(found), len(args.seeds))]
        for row, predicted in zip(rows, by_row, strict=True):
            row[task] = describe(predicted, by_row[0])
    compared = [row[task] for task in args.tasks for row in rows[1:]]
    corrected = adjust_p_values([one["p"] for one in compared])
    for one, p in zip(compared, corrected, strict=True):
        one["p_holm"] = p


def add_draws(
    args: argparse.Namespace, words: list[str], states: list[Path], rows: list[Row]
) -> None:
    """Add to each row the accuracy of a probe over draws of labels, and its difference to the
    published encoder's with an interval over the dev reviews.
    """
    training, _ = open_training(words)
    anchor = Anchor(training.model)  # before a state: it holds the published weights
    probe = open_probe(args)
    published = draw_labels(training, probe, args.draws)
    rows[0]["probe"] = {"accuracy": float(published.mean())}
    for path in states:
        load_weights(training.model, checkpoint.load_state(path))
        step = read_step(path)
        for row in (row for row in rows if row.get("step") == step):
            with anchor.averaged(row["share"]):
                right = draw_labels(training, probe, args.draws)
            gain = right - published
            half = compute_half_width(gain)
            found = {"accuracy": float(right.mean()), "difference": float(gain.mean())}
            found |= {"low": found["difference"] - half, "high": found["difference"] + half}
            row["probe"] = found


def list_words(args: argparse.Namespace) -> list[str]:
    """Return the options of model.pretrain but for its output."""
    steps = max(1, round(args.tokens / (args.batch * Shards.open(args.shards).max_length)))
    every = max(1, steps // CHECKPOINTS)
    settings = {
        "batch": args.batch,
        "validate_every": every,
        "checkpoint_every": every,
        "keep_checkpoints": CHECKPOINTS + 2,
        **dict(text.split("=", 1) for text in args.set),
    }
    options = {
        "shards": args.shards,
        "validation": args.validation,
        "start-from": args.encoder,
        "preset": "small",
        "steps": steps,
        "threads": args.threads,
        "processes": args.ranks,
    }
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    return words + format_settings(settings)


def choose_checkpoints(run: Path, tokens: list[int]) -> list[Path]:
    """Return the checkpoints whose tokens are nearest to these, each once."""
    kept = {path: read_totals(path) for path in checkpoint.list_checkpoints(run / "checkpoints")}
    nearest = [min(kept, key=lambda path: abs(kept[path]["tokens"] - n)) for n in tokens]
    return list(dict.fromkeys(nearest))


def read_totals(path: Path) -> dict[str, Any]:
    """Return the totals of a checkpoint, whose tensors stay unread."""
    totals: dict[str, Any] = json.loads((path / checkpoint.NUMBERS).read_text())["totals"]
    return totals


def read_step(path: Path) -> int:
    return int(read_totals(path)["step"])


def describe_state(run: Path, path: Path, share: float, work: Path) -> Row:
    """Return the row of a checkpoint with a share of the published weights put back."""
    totals = read_totals(path)
    name = f"step-{totals['step']}-share-{share:g}"
    row = {key: totals[key] for key in ("tokens", "step", "cpu_seconds")}
    row |= {"encoder": name, "share": share, "folder": work / name / "encoder"}
    return row | {"loss": read_loss(run, totals["step"])}


def export_encoder(
    args: argparse.Namespace, words: list[str], result: dict[str, Any], path: Path, row: Row
) -> None:
    """Write a checkpoint, averaged with the published weights, as the encoder of its row."""
    training, preset = open_training(words)
    anchor = Anchor(training.model)  # before the state: it holds the published weights
    loop.restore_state(training, checkpoint.load_state(path))
    anchor.average(row["share"])
    training.folder = row["folder"].parent
    outputs.write_models(training, preset, Shards.open(args.shards), result)


def read_loss(run: Path, step: int) -> float | None:
    """Return the loss on dev at a step, if it was measured there."""
    lines = [line for line in read_metrics(run) if line["step"] == step]
    return next((line["validation_loss"] for line in lines if "validation_loss" in line), None)


def finetune(args: argparse.Namespace, task: str, row: Row, seed: int, work: Path) -> Predictions:
    """Return the predictions on test of one fine-tuning."""
    cell = work / "finetuned" / f"{row['encoder']}-{task}-{seed}"
    cell.parent.mkdir(parents=True, exist_ok=True)
    words = ["--encoder", row["folder"], "--task", task, "--data", args.corpus, "--seed", seed]
    settings = FINETUNING | dict(text.split("=", 1) for text in args.finetuning)
    words += ["--preset", "tiny", "--evaluation", cell / "test", *format_settings(settings)]
    job("model.finetune", cell, *words)
    return read_predictions(cell / "test" / "predictions.parquet")


def describe(predicted: list[Predictions], published: list[Predictions]) -> dict[str, Any]:
    """Return the accuracy of each seed and the difference to the published encoder."""
    each = [metrics.compute_metric("accuracy", one) for one in predicted]
    found = compare_arms(metrics.METRICS["accuracy"], predicted, published)
    difference = {"difference": found.difference, "low": found.low, "high": found.high}
    return {"accuracy": mean(each), "by_seed": each, **difference, "p": found.p}


def render_table(rows: list[Row], tasks: list[str]) -> str:
    """Return the rows as Markdown; p is corrected."""
    measured = [*tasks, "probe"] if "probe" in rows[0] else tasks
    names = ["tokens", "published share", "CPU s", "loss on dev"]
    names += [name for column in measured for name in (column, "difference")]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        cells = [f"{row['tokens'] / 1e6:.2f} M", f"{row['share']:g}"]
        cells.append(f"{row['cpu_seconds']:.0f}" if "cpu_seconds" in row else "–")
        cells.append(f"{row['loss']:.3f}" if row.get("loss") is not None else "–")
        for column in measured:
            found = row.get(column)
            cells.append(f"{100 * found['accuracy']:.1f}" if found else "–")
            cells.append(render_difference(found) if found and "difference" in found else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def render_difference(found: dict[str, Any]) -> str:
    """Return a difference to the published encoder with its interval, in points."""
    difference, low, high = (100 * found[name] for name in ("difference", "low", "high"))
    p = f", p = {found['p_holm']:.2g}" if "p_holm" in found else ""
    return f"{difference:+.1f} ({low:+.1f} to {high:+.1f}{p})"


if __name__ == "__main__":
    main()
