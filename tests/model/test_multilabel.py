"""A column with several values, from the dump to the exported model: arms answer with lists."""

import csv

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from amazon_electra.beam_jobs.model_folder.drift import compare_texts
from amazon_electra.beam_jobs.scoring.classifier import load_classifier, read_profile
from amazon_electra.model import export
from amazon_electra.model.evaluation.predictions import read_predictions
from amazon_electra.model.finetune import FinetuneConfig, finetune
from amazon_electra.model.finetuning.examples import Sampling
from amazon_electra.model.finetuning.tasks import find_task
from tests.beam_jobs.dumps import review, run_job, write_lines
from tests.model.corpora import write_bert

TASK = "label:aspects"
WORDS = {"battery": "the battery is flat", "price": "too dear for me", "taste": "tastes of soap"}
CLASSES = sorted(WORDS)


def draw_reviews(seed, shares):
    generator, records = np.random.default_rng(seed), []
    for i in range(500):
        has = generator.random(3) < shares
        aspects = [name for name, own in zip(CLASSES, has, strict=True) if own]
        text = ". ".join([f"kettle number {i}", *(WORDS[name] for name in aspects), "bye"])
        records.append(review(i, text) | {"aspects": aspects})
    return records


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Reviews with any of three aspects, or none, and the corpus of them."""
    folder, records = tmp_path_factory.mktemp("multilabel"), draw_reviews(0, (0.3, 0.5, 0.2))
    dump = write_lines(folder / "d.json", records)
    split = ("--split", "pretrain=40,train=30,dev=10,test=20")
    run_job(folder / "corpus", "--input", dump, "--labels", "aspects", *split)
    return folder / "corpus"


def test_the_task_has_several_answers(corpus):
    task = find_task(TASK, corpus)
    assert (task.shape, task.labels) == ("multilabel", tuple(CLASSES))
    read = task.read(corpus, "train", Sampling(), None)
    assert {sum(example.tags) for example in read} == {0, 1, 2, 3}
    assert all(example.tags[0] == ("battery" in example.text) for example in read)


def fit(corpus, folder, arm):
    encoder, settings = folder.parent / "bert", {"selection": "cross-validation"}
    if not encoder.exists():
        write_bert(encoder)
    if arm == "finetuned":
        settings |= {"epochs": "15", "learning_rates": "0.005", "max_length": "32"}
        settings["layer_decay"] = "1.0"
    more = {} if arm == "tfidf" else {"encoder": encoder}
    if arm == "stack":
        more["parts"] = [folder.parent / f"{name}-fitted" for name in ("finetuned", "tfidf")]
    config = FinetuneConfig(arm=arm, task=TASK, settings=settings)
    return finetune(config, corpus, folder, evaluation=folder.parent / f"{arm}-test", **more)


@pytest.mark.parametrize("arm", ["tfidf", "frozen", "joined", "finetuned", "stack"])
def test_an_arm_answers_with_lists(corpus, arm):
    folder = corpus.parent
    result = fit(corpus, folder / f"{arm}-fitted", arm)
    test = read_predictions(folder / f"{arm}-test" / "predictions.parquet")
    gold, found = np.array(test.labels), np.array(test.predictions)
    assert result.test["micro_f1"] == pytest.approx(f1_score(gold, found, average="micro"))
    assert result.test["macro_f1"] == pytest.approx(f1_score(gold, found, average="macro"))
    assert result.test["subset_accuracy"] == pytest.approx(accuracy_score(gold, found))
    assert result.test["micro_f1"] > (0.4 if arm == "finetuned" else 0.6)
    cell = export.ExportCell(arm, folder / f"{arm}-fitted", folder / f"{arm}-test")
    export.export([cell], TASK, corpus, folder / f"{arm}-model")
    classifier = load_classifier(str(folder / f"{arm}-model"), "fp32")
    task = find_task(TASK, corpus)
    ways = [Sampling(), Sampling(has_dev=False)]
    examples = {e.id: e for way in ways for e in task.read(corpus, "test", way, None)}
    probabilities = classifier.score([examples[one].text for one in test.ids])
    answers = classifier.answer(probabilities)
    expected = [[CLASSES[c] for c in np.flatnonzero(row)] for row in found]
    assert np.mean([a == b for a, b in zip(answers, expected, strict=True)]) > 0.98
    assert (probabilities.sum(1) > 1).any(), "each class by itself"


def test_wrong_labels_of_several_are_listed(tmp_path):
    """Of 500 reviews 15 lack an aspect that their text names."""
    records = draw_reviews(1, 0.4)
    lacking = [i for i, record in enumerate(records) if record["aspects"]][:15]
    for i in lacking:
        del records[i]["aspects"][0]
    dump = write_lines(tmp_path / "d.json", records)
    run_job(tmp_path / "corpus", "--input", dump, "--labels", "aspects")
    config = FinetuneConfig(arm="tfidf", task=TASK, settings={"selection": "cross-validation"})
    finetune(config, tmp_path / "corpus", tmp_path / "cell", evaluation=tmp_path / "test")
    cell, model = export.ExportCell("tfidf", tmp_path / "cell", tmp_path / "test"), tmp_path / "m"
    results = export.export([cell], TASK, tmp_path / "corpus", model)
    wrong = results.content["questions"]["wrong_labels"]
    assert wrong["low"] <= 15 <= wrong["high"]
    with (model / "suspicious.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert len({int(row["row"]) - 1 for row in rows[:15]} & {*lacking}) >= 12
    row = next(row for row in rows if int(row["row"]) - 1 in lacking)
    assert len(row["suggested"].split(" | ")) == len([*filter(None, row["given"].split(" | "))]) + 1
    classifier = load_classifier(str(model), "fp32")
    profile = read_profile(str(model))
    alike = [record["reviewText"] for record in records[400:]]
    other = [f"El libro {i} llegó roto y sin tapa." for i in range(99)]
    for texts, is_new in ((alike, False), (other, True)):
        tally = profile.count(texts, classifier.score(texts), {})
        drift = compare_texts(profile, tally)
        assert bool(drift.findings) == is_new
