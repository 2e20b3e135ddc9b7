"""Fine-tuning beside transformers.Trainer: the same encoder, reviews and settings, one table.

    python tests/bench/peers/finetuning.py --input 'dumps/*.json.gz' --encoder MODEL \
        --precisions bf16 fp32 --rounds 3 [--json]

MODEL is a folder with a BERT-like encoder and its tokenizer. Stars become two classes, as many
reviews of each. The Trainer pads to the longest of a batch and groups reviews by length
(`train_sampling_strategy`). Both sides: one thread, batches of 32, 128 tokens, AdamW, one rate with
warm-up, dropout as in the encoder's config.json, an evaluation on dev at the end of each epoch. CPU
seconds of the training alone give examples per CPU second (an example counts in each epoch); those
of the whole command have start-up, tokens and predictions too. The sides take turns. p is McNemar's
exact test on the test reviews that one side labels right and the other does not.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.bench.dumps import read_lines, read_record
from tests.bench.measuring import measure_commands
from tests.bench.peers.environments import ROOT, make_environment, make_parser, run_bench

HERE = Path(__file__).parent
TRAINER = ["transformers==5.23.0", "accelerate==1.15.0"]


def parse() -> argparse.Namespace:
    p = make_parser(__doc__)
    p.add_argument("--encoder", type=Path, required=True, help="folder of a BERT-like encoder")
    p.add_argument("--reviews", type=int, default=1000, help="of the training, and of the test")
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--learning_rates", type=float, default=1e-4)
    p.add_argument("--precisions", nargs="+", default=["bf16", "fp32"], choices=["bf16", "fp32"])
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--without_trainer", action="store_true", help="ours alone")
    return p.parse_args()


def run_sides(args: argparse.Namespace, folder: Path) -> list[dict]:
    """Run both sides in turn; return one row for each side and precision."""
    labels = write_splits(args.input, folder / "data", args.reviews)
    sides = {"ours": [sys.executable, HERE / "finetuning_ours.py"]}
    if not args.without_trainer:
        python = make_environment(args.environments / "trainer", TRAINER, shares_ours=True)
        sides["Trainer"] = [python, HERE / "finetuning_trainer.py"]
    rows = []
    for precision in args.precisions:
        runs: dict[str, list[dict]] = {name: [] for name in sides}
        for seed in range(args.rounds):
            for name, command in sides.items():
                words = [folder / "data", args.encoder.resolve(), precision, args.epochs]
                words += [args.learning_rate, seed, folder / "out.json"]
                used = measure_commands([[*command, *words]], ROOT)
                run = json.loads((folder / "out.json").read_text())
                runs[name].append(run | {"whole": used.cpu_seconds})
                print(name, precision, run["training_cpu_seconds"], file=sys.stderr, flush=True)
        rows += [
            describe_runs(name, precision, mine, runs["ours"], labels, args)
            for name, mine in runs.items()
        ]
    return rows


def write_splits(inputs: list[str], folder: Path, reviews: int) -> np.ndarray:
    """Write train, dev and test (`text` and `label`, JSON lines): as many reviews of one or two
    stars as of four or five, no text twice; return the labels of test.
    """
    found = {
        record["reviewText"].strip(): float(record["overall"])
        for path in inputs
        for line in read_lines(path)
        if (record := read_record(line)) and record["overall"] not in (None, 3)
    }
    generator = np.random.default_rng(0)
    by_label = [
        generator.permutation([text for text, stars in found.items() if (stars > 3) == label])
        for label in (False, True)
    ]
    folder.mkdir(parents=True)
    start, labels = 0, np.empty(0, int)
    for split, share in {"train": 1.0, "dev": 0.1, "test": 1.0}.items():
        half = max(1, round(reviews * share / 2))
        if start + half > min(map(len, by_label)):
            raise SystemExit(f"--reviews {reviews}: the dumps have too few of each class")
        chosen = [(text, k) for k in (0, 1) for text in by_label[k][start : start + half]]
        generator.shuffle(chosen)
        lines = [json.dumps({"text": text, "label": str(k)}) for text, k in chosen]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        labels, start = np.array([k for _, k in chosen]), start + half
    return labels


def describe_runs(
    name: str,
    precision: str,
    mine: list[dict],
    ours: list[dict],
    labels: np.ndarray,
    args: argparse.Namespace,
) -> dict:
    """Return medians over the rounds; accuracy and p over the reviews of all rounds."""
    seconds = statistics.median(run["training_cpu_seconds"] for run in mine)
    ratio = statistics.median(
        run["training_cpu_seconds"] / own["training_cpu_seconds"]
        for run, own in zip(mine, ours, strict=True)
    )
    right, own_right = (
        np.concatenate([np.array(run["predictions"]) == labels for run in runs])
        for runs in (mine, ours)
    )
    better, worse = int((right & ~own_right).sum()), int((~right & own_right).sum())
    test = binomtest(better, better + worse) if better + worse else None
    return {
        "side": name,
        "precision": precision,
        "examples_per_cpu_second": round(args.reviews * args.epochs / seconds, 1),
        "cpu_seconds_against_ours": round(ratio, 2),
        "whole_cpu_seconds": round(statistics.median(run["whole"] for run in mine), 1),
        "accuracy": round(float(right.mean()), 4),
        "p": round(test.pvalue, 3) if test else 1.0,
    }


if __name__ == "__main__":
    run_bench(parse(), run_sides)
