"""Fine-tuning and evaluation on corpora and encoders made here, through the commands users type."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from amazon_electra.model import finetune
from amazon_electra.model.device import open_device
from amazon_electra.model.finetuning import fit, training
from amazon_electra.model.finetuning.config import make_request
from amazon_electra.model.finetuning.examples import Sampling, load_examples
from amazon_electra.model.finetuning.request import load_split
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.finetuning.training import train
from amazon_electra.model.tracking.metrics_log import read_metrics
from tests.model.finetuning.few_steps import LEARN, SHORT, tune
from tests.refusals import refuses
from tests.words import read_arguments


def test_a_fine_tuned_folder_predicts_what_it_learnt(made, learnt):
    result, folder = learnt, made / "learnt-test"
    assert result["dev"]["accuracy"] > 0.9
    assert result["left_out"] == {"train": {}, "dev": {}}
    evaluation = json.loads((folder / "metrics.json").read_text())
    accuracy = evaluation["metrics"]["accuracy"]
    assert 0.9 < accuracy["low"] <= accuracy["value"] <= accuracy["high"] <= 1.0
    said = pq.read_table(folder / "predictions.parquet")
    assert said.num_rows == evaluation["n"] == np.sum(evaluation["confusion"])
    right = np.mean(np.array(said["label"]) == np.array(said["prediction"]))
    assert right == pytest.approx(accuracy["value"])


def test_the_same_seed_gives_the_same_bytes(made):
    """Whatever was trained before in the process: a run makes several cells in one."""
    drawn = ["--architecture", str(made / "electra"), "--dropout", "0.3"]
    for name, seed in (("first", "0"), ("other", "1"), ("again", "0")):
        tune(made, name, "--seed", seed, *drawn, encoder="random")
    places = (made / name / "model.safetensors" for name in ("first", "again", "other"))
    first, again, other = (place.read_bytes() for place in places)
    assert first == again != other


def test_test_decides_nothing_and_is_what_is_measured(made):
    """The learning rate that is best on dev is kept. With every label of test turned round the same
    rate and the same weights are chosen; the predictions are those of test.
    """
    shutil.copytree(made / "corpus", made / "poisoned")
    for file in (made / "poisoned").glob("*.parquet"):
        table = pq.read_table(file)
        rows = table.to_pylist()
        for row in rows:
            if row["split"] == "test" and row["stars"]:
                row["stars"] = 6 - row["stars"]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    rates = [*LEARN, "--epochs", "3", "--learning_rates", "1e-7", "5e-3"]
    clean = tune(made, "clean", *rates, "--evaluation", str(made / "clean-test"))
    assert [tried["learning_rate"] for tried in clean["tried"]] == [1e-7, 5e-3]
    assert clean["dev"] == clean["tried"][1]["dev"]
    other = tune(made, "other-test", *rates, "--data", str(made / "poisoned"))
    assert other["learning_rate"] == clean["learning_rate"] == 5e-3
    assert other["dev"] == clean["dev"]
    weights = [(made / name / "model.safetensors").read_bytes() for name in ("clean", "other-test")]
    assert weights[0] == weights[1]
    predictions = pq.read_table(made / "clean-test" / "predictions.parquet")
    examples = load_examples(find_task("polarity"), made / "corpus", "test", Sampling())
    assert sorted(predictions["example_id"].to_pylist()) == sorted(e.id for e in examples)


def test_finished_learning_rates_are_not_repeated(made, monkeypatch):
    whole = tune(made, "whole", "--learning_rates", "1e-3", "5e-3")
    trained = []

    def die_in_the_second(model, training, rate):
        if len(trained) == 1:
            raise KeyboardInterrupt
        trained.append(rate)
        return train(model, training, rate)

    with monkeypatch.context() as patched:
        patched.setattr("amazon_electra.model.finetuning.fit.train", die_in_the_second)
        with pytest.raises(KeyboardInterrupt):
            tune(made, "killed", "--learning_rates", "1e-3", "5e-3")
    assert not (made / "killed" / "result.json").exists()
    resumed, step = [], training._train_step

    def count(*given):
        resumed.append(1)
        return step(*given)

    monkeypatch.setattr(training, "_train_step", count)
    result = tune(made, "killed", "--learning_rates", "1e-3", "5e-3")
    assert len(resumed) == result["tried"][1]["steps"]
    assert [tried["dev"] for tried in result["tried"]] == [tried["dev"] for tried in whole["tried"]]
    logs = (read_metrics(made / name) for name in ("killed", "whole"))
    curves = [[{**line, "time": 0} for line in log] for log in logs]
    assert curves[0] == curves[1]
    assert {line["attempt"] for line in curves[0]} == {0, 1}


def diverging(rates):
    """A training whose weights overflow at some learning rates."""

    def train_or_overflow(model, training, rate):
        if rate in rates:
            next(model.parameters()).data.fill_(torch.nan)
        return train(model, training, rate)

    return train_or_overflow


def test_a_learning_rate_that_diverges_leaves_the_others(made, monkeypatch):
    monkeypatch.setattr("amazon_electra.model.finetuning.fit.train", diverging([1e-2]))
    result = tune(made, "diverged", "--learning_rates", "5e-3", "1e-2")
    assert result["learning_rate"] == 5e-3
    assert [tried["diverged"] for tried in result["tried"]] == [False, True]
    assert np.isfinite(result["dev"]["accuracy"])
    monkeypatch.setattr("amazon_electra.model.finetuning.fit.train", diverging([5e-3, 1e-2]))
    with refuses("--learning-rates"):
        tune(made, "all-diverged", "--learning_rates", "5e-3", "1e-2")


def test_every_seed_is_tested_on_the_same(made):
    requests = [ask(made, "--seed", seed, "--n_test", "40") for seed in ("0", "1")]
    train, test = (
        [{e.id for e in load_split(request, split)[0]} for request in requests]
        for split in ("train", "test")
    )
    assert test[0] == test[1]
    assert len(test[0]) == 40
    assert train[0] != train[1]


def ask(made, *words):
    """Return the request of a command line."""
    places = ["--encoder", made / "electra", "--data", made / "corpus", "--output", made / "none"]
    words = [*map(str, places), "--task", "stars", *SHORT, *words]
    given = read_arguments(finetune.finetune, words)
    return make_request(given["config"], made / "corpus", encoder=given["encoder"])


def test_balanced_weights_are_of_the_labels_learnt(made):
    request = ask(made, "--class_weights", "balanced", "--seed", "3")
    tuning = fit.load_tuning(request, open_device("cpu", "fp32"))
    weights = tuning.plan_training().class_weights
    counts = np.bincount([feature.target for feature in tuning.features], minlength=5)
    assert weights.tolist() == pytest.approx((sum(counts) / 5 / counts).tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "polarty"], "--task polarty"),
        (["--data", "/nowhere"], "--data /nowhere"),
        (["--loss", "hinge"], "hinge"),
        (["--colour", "red"], "--colour"),
        (["--batch", "0"], "--batch 0"),
        (["--start", "random"], "architecture"),
        (["--encoder", "/nowhere"], "--encoder /nowhere"),
        (["--recipe", "enormous"], "--recipe"),
        (["--dropout", "5"], "dropout 5"),
        (["--seed", "-1"], "--seed=-1"),
        (["--max_length", "1024"], "--max-length 1024"),
        (["--output", "/dev/null/model"], "--output /dev/null/model"),
        (["--evaluation", "/dev/null/test"], "--evaluation /dev/null/test"),
    ],
)
def test_mistakes_are_named(made, arguments, words):
    with refuses(words):
        tune(made, "mistake", *arguments)
