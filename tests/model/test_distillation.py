"""A teacher's folder in, a smaller student's folder out."""

import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from model import finetune
from model.command import UserMistake
from tests.model.corpora import write_bert, write_corpus, write_electra

SETTINGS = ("epochs=8", "n_train=200", "max_length=48", "layer_decay=1.0")
SHORT = ["--learning_rate", "5e-3", *(part for setting in SETTINGS for part in ("--set", setting))]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distillation")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_corpus(folder / "corpus")
    write_electra(folder / "electra", layers=4)
    write_bert(folder / "bert")
    for pooling in ("cls", "mean"):
        tune(folder, f"teacher-{pooling}", "--encoder", str(folder / "electra"), "--set", f"pooling={pooling}")
    return folder


def tune(made, name, *more):
    places = ["--task", "polarity", "--data", str(made / "corpus"), "--output", str(made / name)]
    return finetune.run([*places, *SHORT, *more])


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_half_a_teacher(made, pooling):
    more = ("--set", "hidden_weight=1.0", "--set", "attention_weight=1.0") if pooling == "cls" else ()
    teacher = ["--teacher", str(made / f"teacher-{pooling}")]
    result = tune(made, f"half-{pooling}", "--encoder", "half", *teacher, *more)
    assert result["dev"]["accuracy"] > 0.9
    config = json.loads((made / f"half-{pooling}" / "config.json").read_text())
    assert config["num_hidden_layers"] == 2
    whole = json.loads((made / f"teacher-{pooling}" / "result.json").read_text())
    assert result["parameters"] < whole["parameters"]
    if pooling == "cls":
        _, report = AutoModelForSequenceClassification.from_pretrained(made / "half-cls", output_loading_info=True)
        assert not report["missing_keys"]
        assert not report["unexpected_keys"]


def test_soft_targets_alone_carry_the_task(made):
    """The student never sees a label."""
    teacher = ["--teacher", str(made / "teacher-cls"), "--set", "soft_weight=1.0"]
    result = tune(made, "soft", "--encoder", str(made / "bert"), *teacher)
    assert result["dev"]["accuracy"] > 0.9


def test_the_teacher_speaks_once(made):
    arguments = ["--encoder", "half", "--teacher", str(made / "teacher-cls"), "--learning_rate", "1e-3", "5e-3"]
    tune(made, "once", *arguments)
    kept = list((made / "once").glob("teacher-*.safetensors"))
    assert len(kept) == 1
    before = kept[0].stat().st_mtime_ns
    tune(made, "once", *arguments)
    assert kept[0].stat().st_mtime_ns == before


def test_half_of_nothing_is_a_mistake(made):
    with pytest.raises(UserMistake, match="needs --teacher"):
        tune(made, "nothing", "--encoder", "half")
