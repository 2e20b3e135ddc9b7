"""Fine-tuning and evaluation on corpora and encoders made here, through the commands users type."""

import json
import os
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from beam_jobs.job.errors import UserError
from beam_jobs.job.settings import read_options
from model import evaluate, finetune
from model.device import open_device
from model.finetuning import fit
from model.finetuning.arguments import make_request
from model.finetuning.features.examples import Sampling, load_examples
from model.finetuning.network import encoders
from model.finetuning.request import prepare_data
from model.finetuning.tasks import find_task
from model.finetuning.training.loop import train
from model.options import FinetuneOptions
from model.tracking.metrics_log import read_metrics
from tests.model.corpora import write_bert, write_corpus, write_distilbert, write_electra

SETTINGS = ("epochs=8", "n_train=200", "max_length=48", "layer_decay=1.0")
SHORT = ["--learning_rate", "5e-3", *(part for setting in SETTINGS for part in ("--set", setting))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finetune")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_corpus(folder / "corpus")
    write_electra(folder / "electra")
    write_bert(folder / "bert")
    write_distilbert(folder / "distilbert")
    return folder


def tune(made, name, *more, task="polarity", encoder="electra"):
    encoder = encoder if encoder == "random" else str(made / encoder)
    arguments = [
        "--encoder",
        encoder,
        "--task",
        task,
        "--data",
        str(made / "corpus"),
        "--output",
        str(made / name),
    ]
    return finetune.run([*arguments, *SHORT, *more])


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_fine_tuned_folder_predicts_what_it_learnt(made, pooling):
    result = tune(
        made, pooling, "--set", f"pooling={pooling}", "--evaluation", str(made / f"{pooling}-test")
    )
    assert result["dev"]["accuracy"] > 0.9
    assert result["left_out"] == {"train": {}, "dev": {}}
    evaluation = json.loads((made / f"{pooling}-test" / "metrics.json").read_text())
    accuracy = evaluation["metrics"]["accuracy"]
    assert 0.9 < accuracy["low"] <= accuracy["value"] <= accuracy["high"] <= 1.0
    said = pq.read_table(made / f"{pooling}-test" / "predictions.parquet")
    assert said.num_rows == evaluation["n"] == np.sum(evaluation["confusion"])
    right = np.mean(np.array(said["label"]) == np.array(said["prediction"]))
    assert right == pytest.approx(accuracy["value"])


def test_with_cls_the_folder_is_what_transformers_says_it_is(made):
    tune(made, "as-cls", "--set", "pooling=cls")
    model, report = AutoModelForSequenceClassification.from_pretrained(
        made / "as-cls", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.config.id2label == {0: "negative", 1: "positive"}
    tokenizer = AutoTokenizer.from_pretrained(made / "as-cls")
    batch = tokenizer(
        ["The lamp is awful.", "The lamp is splendid."], return_tensors="pt", padding=True
    )
    assert model.eval()(**batch).logits.argmax(-1).tolist() == [0, 1]


def test_with_mean_pooling_the_folder_holds_encoder_and_head(made):
    tune(made, "as-mean", "--set", "pooling=mean")
    _, report = AutoModel.from_pretrained(made / "as-mean", output_loading_info=True)
    assert not report["missing_keys"]
    model, head, tokenizer = encoders.load_finetuned(made / "as-mean")
    assert (head.pooling, head.labels) == ("mean", ("negative", "positive"))
    ids = torch.tensor([tokenizer.encode("the kettle is terrible").ids])
    assert int(model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.argmax()) == 0
    assert (
        "head.safetensors"
        in json.loads((made / "as-mean" / "config.json").read_text())["amazon_electra"]["note"]
    )


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(made):
    for name, seed in (("first", "0"), ("again", "0"), ("other", "1")):
        tune(made, name, "--seed", seed)
    weights = [
        (made / name / "model.safetensors").read_bytes() for name in ("first", "again", "other")
    ]
    assert weights[0] == weights[1] != weights[2]


def test_the_learning_rate_that_is_best_on_dev_is_kept(made):
    result = tune(made, "grid", "--learning_rate", "1e-7", "5e-3")
    assert [tried["learning_rate"] for tried in result["tried"]] == [1e-7, 5e-3]
    assert result["learning_rate"] == 5e-3
    assert result["dev"] == result["tried"][1]["dev"]


def test_test_decides_nothing_and_is_what_is_measured(made):
    """With every label of test turned round the same rate and the same weights are chosen; the
    predictions are those of test.
    """
    shutil.copytree(made / "corpus", made / "poisoned")
    for file in (made / "poisoned").glob("*.parquet"):
        table = pq.read_table(file)
        rows = table.to_pylist()
        for row in rows:
            if row["split"] == "test" and row["stars"]:
                row["stars"] = 6 - row["stars"]
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
    rates = ["--learning_rate", "1e-7", "5e-3"]
    clean = tune(made, "clean", *rates, "--evaluation", str(made / "clean-test"))
    other = tune(made, "other-test", *rates, "--data", str(made / "poisoned"))
    assert other["learning_rate"] == clean["learning_rate"] == 5e-3
    assert other["dev"] == clean["dev"]
    weights = [(made / name / "model.safetensors").read_bytes() for name in ("clean", "other-test")]
    assert weights[0] == weights[1]
    predictions = pq.read_table(made / "clean-test" / "predictions.parquet")
    examples = load_examples(find_task("polarity"), made / "corpus", "test", Sampling())
    assert sorted(predictions["example_id"].to_pylist()) == sorted(e.id for e in examples)


def test_a_killed_fine_tuning_does_not_repeat_finished_learning_rates(made, monkeypatch):
    whole = tune(made, "whole", "--learning_rate", "1e-3", "5e-3")
    trained = []

    def die_in_the_second(model, training, rate):
        if len(trained) == 1:
            raise KeyboardInterrupt
        trained.append(rate)
        return train(model, training, rate)

    with monkeypatch.context() as patched:
        patched.setattr("model.finetuning.fit.train", die_in_the_second)
        with pytest.raises(KeyboardInterrupt):
            tune(made, "killed", "--learning_rate", "1e-3", "5e-3")
    assert not (made / "killed" / "result.json").exists()
    resumed = []

    def count(model, training, rate):
        resumed.append(rate)
        return train(model, training, rate)

    monkeypatch.setattr("model.finetuning.fit.train", count)
    result = tune(made, "killed", "--learning_rate", "1e-3", "5e-3")
    assert resumed == [5e-3]
    assert [tried["dev"] for tried in result["tried"]] == [tried["dev"] for tried in whole["tried"]]
    curves = [
        [{**line, "time": 0} for line in read_metrics(made / name)] for name in ("killed", "whole")
    ]
    assert curves[0] == curves[1]
    assert {line["attempt"] for line in curves[0]} == {0, 1}


def test_what_attempts_took_is_timed_and_counted_to_the_last_step(made, monkeypatch):
    shown, totals = [], []

    @contextmanager
    def track(total, unit, title):
        totals.append(total)
        yield SimpleNamespace(update=lambda step, **numbers: shown.append(step))

    clock = {"perf_counter": iter([100.0, 107.5]), "process_time": iter([10.0, 13.25])}
    monkeypatch.setattr(fit, "track_progress", track)
    monkeypatch.setattr(
        fit, "time", SimpleNamespace(**{name: partial(next, v) for name, v in clock.items()})
    )
    result = tune(made, "timed", "--learning_rate", "1e-3", "5e-3", "--set", "epochs=1")
    assert (result["seconds"], result["cpu_seconds"]) == (7.5, 3.25)
    steps = result["tried"][0]["steps"]
    assert totals == [2 * steps]
    assert sorted(shown) == shown
    assert {steps, 2 * steps} <= set(shown)
    assert shown[-1] == 2 * steps


def diverging(rates):
    """A training whose weights overflow at some learning rates."""

    def train_or_overflow(model, training, rate):
        if rate in rates:
            next(model.parameters()).data.fill_(torch.nan)
        return train(model, training, rate)

    return train_or_overflow


def test_a_learning_rate_that_diverges_leaves_the_others(made, monkeypatch):
    monkeypatch.setattr("model.finetuning.fit.train", diverging([1e-2]))
    result = tune(made, "diverged", "--learning_rate", "5e-3", "1e-2", "--set", "epochs=2")
    assert result["learning_rate"] == 5e-3
    assert [tried["diverged"] for tried in result["tried"]] == [False, True]
    assert np.isfinite(result["dev"]["accuracy"])


def test_where_every_learning_rate_diverges_one_line_says_so(made, monkeypatch):
    monkeypatch.setattr("model.finetuning.fit.train", diverging([5e-3, 1e-2]))
    with pytest.raises(UserError, match=r"every learning rate diverged \(0.005, 0.01\)"):
        tune(made, "all-diverged", "--learning_rate", "5e-3", "1e-2", "--set", "epochs=1")


def test_an_evaluation_that_was_killed_does_not_repeat_the_fit(made):
    once = ["--set", "epochs=1", "--evaluation", str(made / "once-test")]
    first = tune(made, "once", *once)
    weights = (made / "once" / "model.safetensors").stat().st_mtime_ns
    (made / "once-test" / "metrics.json").unlink()
    assert tune(made, "once", *once) == json.loads(json.dumps(first))
    assert (made / "once" / "model.safetensors").stat().st_mtime_ns == weights
    (made / "once-test" / "metrics.json").unlink()
    tune(made, "once", *once, "--seed", "1")
    assert (made / "once" / "model.safetensors").stat().st_mtime_ns > weights
    (made / "once-test" / "metrics.json").unlink()
    (made / "electra" / "config.json").touch()
    weights = (made / "once" / "model.safetensors").stat().st_mtime_ns
    tune(made, "once", *once, "--seed", "1")
    assert (made / "once" / "model.safetensors").stat().st_mtime_ns > weights


@pytest.mark.parametrize("encoder", ["electra", "bert", "distilbert", "random"])
def test_encoders_of_any_architecture(made, encoder):
    more = ["--architecture", str(made / "bert")] if encoder == "random" else []
    result = tune(made, f"any-{encoder}", "--set", "epochs=1", *more, task="stars", encoder=encoder)
    assert set(result["dev"]) == {"accuracy", "macro_f1", "ece", "loss"}


def test_every_seed_is_tested_on_the_same_examples_but_trained_on_others(made):
    ids = []
    for seed in ("0", "1"):
        tune(made, f"ids-{seed}", "--seed", seed, "--set", "n_test=40", "--set", "epochs=1")
        folder = ["--data", str(made / "corpus"), "--output", str(made / f"ids-test-{seed}")]
        evaluate.run(["--model", str(made / f"ids-{seed}"), "--task", "polarity", *folder])
        ids.append(
            pq.read_table(made / f"ids-test-{seed}" / "predictions.parquet")[
                "example_id"
            ].to_pylist()
        )
    assert ids[0] == ids[1]
    assert len(ids[0]) == 40
    train = [
        {
            e.id
            for e in load_examples(
                find_task("polarity"), made / "corpus", "train", Sampling(50, seed)
            )
        }
        for seed in (0, 1)
    ]
    assert train[0] != train[1]


def test_balanced_samples_and_nested_samples(made):
    balanced = load_examples(
        find_task("stars"), made / "corpus", "train", Sampling(50, 0, balanced=True)
    )
    assert np.bincount([e.label for e in balanced]).tolist() == [10] * 5
    small, large = (
        {
            e.id
            for e in load_examples(find_task("polarity"), made / "corpus", "train", Sampling(n, 3))
        }
        for n in (20, 60)
    )
    assert small < large
    everything = load_examples(find_task("polarity"), made / "corpus", "test", Sampling())
    assert all(e.slices["stars"] != "3" for e in everything)


@pytest.mark.parametrize("weights", ["balanced", "none"])
def test_balanced_weights_are_those_of_the_labels_that_are_learnt(made, weights):
    settings = [*SHORT, "--set", f"class_weights={weights}", "--seed", "3"]
    places = ["--encoder", made / "electra", "--data", made / "corpus", "--output", made / "none"]
    words = [*map(str, places), "--task", "stars", *settings]
    request = make_request(read_options(FinetuneOptions, words, "", ""))
    prepared = prepare_data(request)
    training = fit._make_training(request, prepared, open_device("cpu", "fp32"))
    assert (training.seed, training.settings.max_length) == (3, 48)
    if weights == "none":
        assert training.class_weights is None
        return
    counts = np.bincount([example.label for example in prepared.train], minlength=5)
    assert training.class_weights.tolist() == pytest.approx(
        (sum(counts) / 5 / counts).tolist(), rel=1e-5
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "polarty"], "unknown; the tasks are"),
        (["--data", "/nowhere"], "no such file or folder"),
        (["--set", "pooling=max"], "expected cls or mean"),
        (["--set", "colour=red"], "no such field"),
        (["--set", "batch=0"], "batch=0: must be from 1"),
        (["--encoder", "random"], "--architecture"),
        (["--encoder", "/nowhere"], "no transformers model there"),
        (["--preset", "enormous"], "--preset enormous: expected tiny or small"),
        (["--set", "dropout=5"], "dropout=5.0: must be from 0 to 0.95"),
        (["--seed", "-1"], "--seed -1: give a number from 0"),
        (["--set", "max_length=1024"], "max_length is 1024, but .*electra has 512 positions"),
        (
            ["--output", "/dev/null/model"],
            "--output /dev/null/model: no files can be written there",
        ),
        (
            ["--evaluation", "/dev/null/test"],
            "--evaluation /dev/null/test: no files can be written there",
        ),
    ],
)
def test_mistakes_are_named(made, arguments, words):
    with pytest.raises(UserError, match=words):
        tune(made, "mistake", *arguments)


def without(folder, copy, unwanted):
    """A copy of the folder whose weights file has not what the name says."""
    shutil.copytree(folder, copy)
    weights = {
        name: w for name, w in load_file(copy / "model.safetensors").items() if unwanted not in name
    }
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_encoder_without_one_of_its_layers_is_not_made_up(made, pooling):
    without(made / "bert", made / f"lacking-{pooling}", "layer.1.")
    words = rf"--encoder .*/lacking-{pooling}: its weights file .*layer.1.attention.* and \d+ more"
    with pytest.raises(UserError, match=words):
        tune(made, "unmade", "--set", f"pooling={pooling}", encoder=f"lacking-{pooling}")


def test_an_encoder_whose_config_is_that_of_another_is_refused(made):
    shutil.copytree(made / "bert", made / "wider")
    config = json.loads((made / "wider" / "config.json").read_text())
    (made / "wider" / "config.json").write_text(json.dumps(config | {"intermediate_size": 96}))
    with pytest.raises(
        UserError, match=r"--encoder .*/wider: its weights file .* of another shape"
    ):
        tune(made, "unmade", encoder="wider")


def test_a_weights_file_that_is_cut_off_is_told_in_one_line(made):
    shutil.copytree(made / "bert", made / "cut")
    os.truncate(made / "cut" / "model.safetensors", 5000)
    with pytest.raises(UserError, match=r"--encoder .*/cut: .*not fully covered"):
        tune(made, "unmade", encoder="cut")


def test_a_pooler_may_be_missing_for_not_every_objective_has_one(made):
    without(made / "bert", made / "unpooled", "pooler")
    assert tune(made, "pooled", "--set", "epochs=1", encoder="unpooled")["n_dev"] > 0


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_fine_tuned_folder_without_its_head_does_not_predict(made, pooling):
    tune(made, f"whole-{pooling}", "--set", f"pooling={pooling}", "--set", "epochs=1")
    without(made / f"whole-{pooling}", made / f"headless-{pooling}", "classifier")
    (made / f"headless-{pooling}" / "head.safetensors").unlink(missing_ok=True)
    words = {
        "mean": "head.safetensors is missing",
        "cls": "its weights file .*classifier.dense.bias",
    }[pooling]
    with pytest.raises(UserError, match=f"headless-{pooling}: {words}"):
        encoders.load_finetuned(made / f"headless-{pooling}")


@pytest.mark.parametrize("encoder", ["electra", "bert"])
def test_a_fine_tuned_folder_as_encoder_gets_a_head_of_the_seed(made, encoder):
    """Its encoder is what was learnt; its classes may be others."""
    tune(made, f"tuned-{encoder}", "--set", "pooling=cls", "--set", "epochs=1", encoder=encoder)
    folder, heads = made / f"tuned-{encoder}", []
    learnt = load_file(folder / "model.safetensors")
    for task, seed in (("polarity", 1), ("polarity", 1), ("polarity", 2), ("stars", 1)):
        torch.manual_seed(seed)
        state = encoders.build_network(str(folder), None, find_task(task), "cls").state_dict()
        assert all(
            torch.equal(state[name], w)
            for name, w in learnt.items()
            if not name.startswith("classifier")
        )
        heads.append(
            [w for name, w in state.items() if name.startswith("classifier") and w.ndim == 2]
        )
    first, again, other, of_stars = heads
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert (len(first[-1]), len(of_stars[-1])) == (2, 5)
    assert (
        tune(
            made, f"stars-{encoder}", "--set", "epochs=1", task="stars", encoder=f"tuned-{encoder}"
        )["n_dev"]
        > 0
    )
    spans = encoders.build_network(str(made / f"stars-{encoder}"), None, find_task("squad2"), "cls")
    assert spans.qa_outputs.out_features == 2


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_a_model_folder_is_not_run(tmp_path, name):
    """transformers would ask on the terminal whether to run it, and "y" would."""
    write_electra(tmp_path / "encoder")
    marker = tmp_path / "code ran"
    code = f"import pathlib\npathlib.Path({str(marker)!r}).touch()\nclass Own: pass\n"
    (tmp_path / "encoder" / "own.py").write_text(code)
    file = tmp_path / "encoder" / name
    fields = json.loads(file.read_text()) if file.exists() else {}
    own = {"AutoConfig": "own.Own", "AutoModel": "own.Own", "AutoTokenizer": ["own.Own", None]}
    file.write_text(json.dumps(fields | {"model_type": "own", "auto_map": own}))
    with pytest.raises(UserError, match=rf"{name} names Python code of its own \(auto_map\)"):
        encoders.build_network(str(tmp_path / "encoder"), None, find_task("polarity"), "cls")
    assert not marker.exists()


def test_a_real_checkpoint_in_the_old_format(made):
    checkpoint = Path(__file__).parents[4] / "shared/data/tiny_checkpoint/bert-xsmall-dummy"
    if not checkpoint.exists():
        pytest.skip("shared/data is not there: the published checkpoint cannot be tried")
    places = [
        "--encoder",
        str(checkpoint),
        "--data",
        str(made / "corpus"),
        "--output",
        str(made / "real"),
    ]
    result = finetune.run(
        ["--task", "polarity", *places, *SHORT, "--set", "epochs=1", "--set", "max_length=20"]
    )
    assert result["n_dev"] > 0
