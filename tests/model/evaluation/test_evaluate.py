"""An evaluation is of the split it was asked for, and keeps mistakes as a reader knows them."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import device, evaluate, finetune
from amazon_electra.model.evaluate import write_mistakes
from amazon_electra.model.evaluation import latency
from amazon_electra.model.evaluation.predictions import Predictions, read_predictions
from amazon_electra.model.finetuning.examples import Example
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.report.formats import format_answer
from tests.model.corpora import write_corpus, write_electra, write_finetuned

FOUR, TWO = {"n_classes": 4}, {"n_classes": 2}
ENDINGS = ("He runs", "He sits", "He eats", "He sleeps")


WORDS = {"words": ("EU", "rejects", "German"), "tags": (3, 0, 7)}
TAGGED = ("EU/B-ORG rejects/O German/B-MISC", "EU/B-ORG rejects/O German/O")
COUNTS = {name: np.array([n]) for name, n in (("right", 1), ("predicted", 1), ("labelled", 2))}
ANSWERED = Example("a", "Who?", "Ann did", answers=(("Ann", 0),))


@pytest.mark.parametrize(
    ("task", "example", "label", "prediction", "more", "shown"),
    [
        (
            *("conll2003", Example("a", "EU rejects German", **WORDS), [3, 0, 7], [3, 0, 0]),
            *({"scores": COUNTS}, TAGGED),
        ),
        ("swag", Example("a", "She.", label=2, choices=ENDINGS), 2, 1, FOUR, ENDINGS[2:0:-1]),
        ("polarity", Example("a", "Fine.", label=1), 1, 0, TWO, ("positive", "negative")),
        ("squad2", ANSWERED, [["Ann", 0]], "", {"scores": {"exact": np.zeros(1)}}, ("Ann", "none")),
    ],
)
def test_a_mistake_of_every_shape_can_be_read(
    task, example, label, prediction, more, shown, tmp_path
):
    said = Predictions(["a"], [label], [prediction], np.ones(1), **more)
    write_mistakes(said, [example], find_task(task), tmp_path, tmp_path / "mistakes.jsonl")
    row = json.loads((tmp_path / "mistakes.jsonl").read_text())
    assert (format_answer(row["label"]), format_answer(row["prediction"])) == shown


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    """A model folder that saw thirty reviews, and its corpus."""
    folder = tmp_path_factory.mktemp("evaluate")
    settings = ("epochs=1", "n_train=30", "n_dev=20", "max_length=16")
    command = ["--encoder", str(write_electra(folder / "electra")), "--task", "polarity"]
    command += ["--data", str(write_corpus(folder / "corpus")), "--output", str(folder / "model")]
    command += ["--learning_rates", "1e-3"]
    call_job(
        finetune.finetune, [*command, *(part for setting in settings for part in [f"--{setting}"])]
    )
    return folder


def read_ids(corpus, split):
    """Return the ids of the reviews of a split that have a polarity: three stars have none."""
    table = pq.read_table(corpus, columns=["review_id", "split", "stars"])
    rows = [row for row in table.to_pylist() if row["split"] == split]
    return {row["review_id"].hex() for row in rows if row["stars"] not in (None, 3)}


@pytest.mark.parametrize("split", ["test", "dev"])
def test_predictions_are_of_the_split_asked_for(finetuned, split):
    output = finetuned / split
    command = ["--model", str(finetuned / "model"), "--task", "polarity", "--split", split]
    call_job(
        evaluate.evaluate, [*command, "--data", str(finetuned / "corpus"), "--output", str(output)]
    )
    ids = read_predictions(output / "predictions.parquet").ids
    expected = read_ids(finetuned / "corpus", split)
    assert len(ids) == len(set(ids)) == (len(expected) if split == "test" else 20)
    assert set(ids) <= expected
    assert json.loads((output / "metrics.json").read_text())["split"] == split
    mistakes = (output / "mistakes.jsonl").read_text().splitlines()
    assert {json.loads(line)["example_id"] for line in mistakes} <= set(ids)


def test_a_cost_is_measured_on_its_device(tmp_path, monkeypatch):
    """Reviews are repeated until enough batches are timed, unless the model is slow."""
    assert latency.BATCHES >= 100
    monkeypatch.setattr(latency, "BATCHES", 60)
    monkeypatch.setattr(latency, "REVIEWS", 40)
    folder = write_finetuned(tmp_path)
    gpu = device.Device("fp32")
    monkeypatch.setattr(gpu, "measure_memory_mb", lambda: 2.5)
    monkeypatch.setattr(latency, "open_device", lambda kind, precision: gpu)
    cost = latency.measure_latency(folder / "model", "polarity", folder / "corpus", 1, "cpu")
    assert cost["peak_bytes"] == 2.5 * 2**20
    assert cost["bytes"] == (folder / "model" / "model.safetensors").stat().st_size
    assert cost["bytes"] == pytest.approx(4 * cost["parameters"], rel=0.1)
    assert (cost["reviews"], cost["batch_1"]["batches"], cost["batch_32"]["batches"]) == (
        40,
        80,
        60,
    )
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    once = latency.measure_latency(folder / "model", "polarity", folder / "corpus", 1, "cpu")
    assert (once["batch_1"]["batches"], once["batch_32"]["batches"]) == (40, 2)
    assert 0 < cost["batch_1"]["p50_ms"] <= cost["batch_1"]["p99_ms"]
