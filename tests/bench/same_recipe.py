"""How often two arms of one recipe are said to differ: an A/A study with real trainings.

    python tests/bench/same_recipe.py [--pretrainings 12] [--studies 200] [--work DIR] [--json]

One tiny recipe is pre-trained with many seeds and each encoder fine-tuned with the same three. A
study draws three pre-trainings for each of its two arms, which differ by their seeds alone, so
that every difference found is a false positive: about 5% are expected. Beside it: one pre-training
an arm, as studies had it before. Studies share trainings, so that they tell less than as many
independent ones.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.sample.sample_dump import write_sample
from model import finetune, pretrain
from model.evaluation.metrics import METRICS, compute_metric
from model.evaluation.predictions import Predictions, read_predictions
from model.evaluation.significance import compare_arms
from tests.bench.small_budget import job

SHAPE = {"layers": 1, "hidden": 32, "intermediate": 64, "embedding": 32, "batch": 8}
OF_AN_ARM = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pretrainings", type=int, default=12, help="seeds, 6 or more")
    parser.add_argument("--finetunings", type=int, default=3, help="seeds of each encoder")
    parser.add_argument("--studies", type=int, default=200, help="pairs of arms that are drawn")
    parser.add_argument("--steps", type=int, default=300, help="of a pre-training")
    parser.add_argument("--reviews", type=int, default=4_000, help="of the sample")
    parser.add_argument("--work", help="folder to keep everything in")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="same-recipe-") as scratch:
        trained = train(args, Path(args.work or scratch))
    row = measure(trained, args.studies)
    print(json.dumps(row) if args.json else "\n".join(f"{k:32} {v:.4g}" for k, v in row.items()))


def train(args: argparse.Namespace, work: Path) -> list[list[Predictions]]:
    """Return predictions on test, [pre-trainings][fine-tunings]."""
    work.mkdir(parents=True, exist_ok=True)
    dump, corpus, vocabulary, shards = (
        work / name for name in ("sample.json.gz", "corpus", "vocabulary", "shards")
    )
    if not dump.exists():
        write_sample(dump, args.reviews, 0)
    job("beam_jobs.corpus_job", corpus, "--input", dump)
    job("model.vocabulary", vocabulary, "--corpus", corpus, "--size", 1000)
    packing = ["--corpus", corpus, "--vocabulary", vocabulary, "--max_length", 64]
    job("beam_jobs.shards_job", shards, *packing)
    shape = [f"--set={name}={value}" for name, value in SHAPE.items()]
    recipe = ["--shards", shards, "--preset", "tiny", "--device", "cpu", "--threads", 1, *shape]
    recipe += ["--steps", args.steps]
    about = ["--task", "polarity", "--data", corpus, "--preset", "tiny", "--device", "cpu"]
    about += ["--learning_rate", "4e-3", "--set=epochs=10", "--set=n_train=200", "--set=n_dev=50"]
    about += ["--set=sampling=balanced", "--set=balanced_test=true"]
    trained = []
    for seed in range(args.pretrainings):
        run = work / f"pretraining-{seed}"
        if not (run / "result.json").exists():
            pretrain.run([*map(str, recipe), "--output", str(run), f"--set=seed={seed}"])
        cells = [work / f"cell-{seed}-{number}" for number in range(args.finetunings)]
        for number, cell in enumerate(cells):
            places = ["--encoder", run / "discriminator", "--evaluation", cell / "test"]
            if not (cell / "test" / "metrics.json").exists():
                own = [*places, *about, "--output", cell, "--seed", number]
                finetune.run(list(map(str, own)))
        trained.append([read_predictions(cell / "test" / "predictions.parquet") for cell in cells])
    return trained


def measure(trained: Sequence[Sequence[Predictions]], studies: int) -> dict[str, Any]:
    """Return the shares of studies that find a difference where there is none."""
    accuracies = np.array([[compute_metric("accuracy", p) for p in row] for row in trained])
    return {
        "examples": len(trained[0][0]),
        "mean_accuracy": float(accuracies.mean()),
        "between_pretrainings": float(accuracies.mean(1).std(ddof=1)),
        "studies": studies,
        "false_positives": count_differences(trained, studies, OF_AN_ARM) / studies,
        "of_one_pretraining_an_arm": count_differences(trained, studies, 1) / studies,
    }


def count_differences(
    trained: Sequence[Sequence[Predictions]], studies: int, pretrainings: int
) -> int:
    """Return how many studies of so many pre-trainings an arm find a difference."""
    generator, found = np.random.default_rng(0), 0
    for study in range(studies):
        drawn = generator.permutation(len(trained))[: 2 * pretrainings]
        a, b = (
            [p for seed in half for p in trained[seed]]
            for half in (drawn[:pretrainings], drawn[pretrainings:])
        )
        pairs = [(i, k) for i in range(pretrainings) for k in range(len(trained[0]))]
        known = pairs if pretrainings > 1 else None
        found += compare_arms(METRICS["accuracy"], a, b, known, seed=study).is_significant
    return found


if __name__ == "__main__":
    main()
