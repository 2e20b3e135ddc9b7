"""How often two arms of one recipe are said to differ: an A/A study with real trainings.

    python tests/bench/same_recipe.py [--studies 40] [--processes 1] [--work DIR] [--json]

Every study has a sample of its own: a dump, its corpus, vocabulary and shards. One tiny recipe is
pre-trained on it with six seeds, three for each of two arms, and every encoder is fine-tuned with
the same three seeds. The arms differ by seeds alone, so that every difference found is a false
positive: about 5% are expected. Studies share neither texts nor trainings, so their number is that
of independent trials, and the interval is the exact one of a share (Clopper and Pearson 1934).
Beside it: one pre-training an arm, as studies had it before. What is finished in `--work` is not
made again. A study takes about a CPU minute and leaves 15 MB.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest

sys.path.insert(0, str(Path(__file__).parents[2]))
from beam_jobs.sample.sample_dump import write_sample
from model import finetune, pretrain
from model.evaluation.metrics import METRICS, compute_metric
from model.evaluation.predictions import Predictions, read_predictions
from model.evaluation.significance import compare_arms
from tests.bench.small_budget import job

SHAPE = {"layers": 1, "hidden": 32, "intermediate": 64, "embedding": 32, "batch": 8}
FINETUNING = {
    "epochs": 10,
    "n_train": 200,
    "n_dev": 50,
    "sampling": "balanced",
    "balanced_test": "true",
}
SPLIT = "pretrain=60,train=10,dev=5,test=25"
OF_AN_ARM = 3
"""Pre-trainings of an arm, and fine-tunings of each."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=40, help="each with its own sample")
    parser.add_argument("--steps", type=int, default=300, help="of a pre-training")
    parser.add_argument("--reviews", type=int, default=4_000, help="of a sample")
    parser.add_argument("--processes", type=int, default=1, help="studies at the same time")
    parser.add_argument("--work", type=Path, help="folder to keep everything in")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="same-recipe-") as scratch:
        studies = run_studies(chosen, chosen.work or Path(scratch))
    row = summarize_studies(studies)
    print(json.dumps(row) if chosen.json else format_row(row))


def run_studies(chosen: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Return what each study finds; they are made one after the other, or in so many processes."""
    folder = work / f"{chosen.steps}-steps-{chosen.reviews}-reviews"
    folder.mkdir(parents=True, exist_ok=True)
    run = partial(run_study, folder=folder, steps=chosen.steps, reviews=chosen.reviews)
    if chosen.processes == 1:
        return [run(number) for number in range(chosen.studies)]
    with ProcessPoolExecutor(chosen.processes, get_context("spawn")) as pool:
        return list(pool.map(run, range(chosen.studies)))


def run_study(number: int, folder: Path, steps: int, reviews: int) -> dict[str, Any]:
    """Return what a study of two arms of one recipe finds; the jobs' messages go to a file."""
    torch.set_num_threads(1)
    place = folder / f"study-{number:03d}"
    place.mkdir(exist_ok=True)
    with (place / "log.txt").open("a") as log, contextlib.redirect_stderr(log):
        shards = make_data(place, number, reviews)
        arms = [
            [
                train(place, shards, steps, OF_AN_ARM * arm + pretraining, number)
                for pretraining in range(OF_AN_ARM)
            ]
            for arm in (0, 1)
        ]
    accuracies = np.array(
        [[[compute_metric("accuracy", p) for p in row] for row in arm] for arm in arms]
    )
    found = compare([[p for row in arm for p in row] for arm in arms], number)
    of_one = compare([arm[0] for arm in arms], number)
    return {
        "study": number,
        "examples": found.examples,
        "accuracy": float(accuracies.mean()),
        "between_pretrainings": float(np.sqrt(accuracies.mean(2).var(1, ddof=1).mean())),
        "difference": found.difference,
        "p": found.p,
        "p_of_one_pretraining": of_one.p,
    }


def make_data(place: Path, number: int, reviews: int) -> Path:
    """Return the shards of a study's own sample."""
    dump, corpus, vocabulary = (place / name for name in ("sample.json.gz", "corpus", "vocabulary"))
    if not dump.exists():
        write_sample(dump, reviews, number)
    words = ["--direct_num_workers", 1, "--direct_running_mode", "in_memory"]
    job("beam_jobs.corpus_job", corpus, "--input", dump, "--split", SPLIT, *words)
    job("model.vocabulary", vocabulary, "--corpus", corpus, "--size", 1000)
    packing = ["--corpus", corpus, "--vocabulary", vocabulary, "--max_length", 64]
    job("beam_jobs.shards_job", place / "shards", *packing, *words)
    return place / "shards"


def train(
    place: Path, shards: Path, steps: int, pretraining: int, number: int
) -> list[Predictions]:
    """Return the predictions on test of an encoder's fine-tunings; their seeds are the same for
    every encoder of a study.
    """
    run = place / f"pretraining-{pretraining}"
    common = ["--preset", "tiny", "--device", "cpu"]
    if not (run / "result.json").exists():
        recipe = ["--shards", shards, "--output", run, "--threads", 1, "--steps", steps]
        settings = SHAPE | {"seed": 6 * number + pretraining}
        pretrain.run([*map(str, [*common, *recipe]), *format_settings(settings)])
    about = ["--task", "polarity", "--data", place / "corpus", "--encoder", run / "discriminator"]
    found = []
    for seed in range(OF_AN_ARM * number, OF_AN_ARM * (number + 1)):
        cell = place / f"cell-{pretraining}-{seed}"
        if not (cell / "test" / "metrics.json").exists():
            own = ["--output", cell, "--evaluation", cell / "test", "--seed", seed]
            words = [*common, *about, *own, "--learning_rate", "4e-3"]
            finetune.run([*map(str, words), *format_settings(FINETUNING)])
        found.append(read_predictions(cell / "test" / "predictions.parquet"))
    return found


def compare(arms: Sequence[Sequence[Predictions]], number: int) -> Any:
    """Return the comparison of two arms; the cells of each are in the order of their seeds."""
    pretrainings = len(arms[0]) // OF_AN_ARM
    pairs = [(i, k) for i in range(pretrainings) for k in range(OF_AN_ARM)]
    known = pairs if pretrainings > 1 else None
    return compare_arms(METRICS["accuracy"], *arms, known, seed=number)


def summarize_studies(studies: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the shares of studies that find a difference where there is none, with the exact
    interval of each.
    """
    row: dict[str, Any] = {"studies": len(studies)}
    for name in ("examples", "accuracy", "between_pretrainings"):
        row[name] = float(np.mean([study[name] for study in studies]))
    for name, key in (("false_positives", "p"), ("of_one_pretraining", "p_of_one_pretraining")):
        count = sum(study[key] < 0.05 for study in studies)
        interval = binomtest(count, len(studies)).proportion_ci(method="exact")
        row |= {name: count, f"{name}_share": count / len(studies)}
        row |= {f"{name}_low": float(interval.low), f"{name}_high": float(interval.high)}
    return row | {"by_study": list(studies)}


def format_settings(settings: dict[str, Any]) -> list[str]:
    return [f"--set={name}={value}" for name, value in settings.items()]


def format_row(row: dict[str, Any]) -> str:
    """Return a line for each figure, and a sentence for each share."""
    lines = [
        f"{row['studies']} studies of {row['examples']:.0f} test reviews, "
        f"{100 * row['accuracy']:.1f}% right on average, pre-trainings differ by a deviation of "
        f"{100 * row['between_pretrainings']:.1f} points"
    ]
    for name, told in (
        ("false_positives", "three pre-trainings by three fine-tunings an arm"),
        ("of_one_pretraining", "one pre-training by three fine-tunings an arm"),
    ):
        share, low, high = (100 * row[f"{name}_{part}"] for part in ("share", "low", "high"))
        lines.append(
            f"{told}: {row[name]} find a difference, {share:.1f}% ({low:.1f} to {high:.1f})"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
