"""A teacher's folder in, a smaller student's folder out."""

import json
import shutil

import pytest
import torch
from transformers import ElectraConfig, ElectraForPreTraining

from amazon_electra.model.finetuning import distillation
from amazon_electra.model.finetuning.request import choose_layers
from tests.model.corpora import write_electra
from tests.model.finetuning.few_steps import LEARN, load_whole, tune
from tests.refusals import refuses

INSIDE = ("--hidden_weight", "1.0", "--attention_weight", "1.0")


@pytest.fixture(scope="module")
def teacher(made):
    """The words that name a teacher of four layers."""
    write_electra(made / "deep", layers=4)
    tune(made, "teacher", *LEARN, encoder="deep")
    return ["--teacher", str(made / "teacher")]


def test_half_a_teacher(made, teacher):
    result = tune(made, "half", *teacher, *INSIDE, encoder="half")
    whole = json.loads((made / "teacher" / "result.json").read_text())
    assert result["parameters"] < whole["parameters"]
    assert load_whole(made / "half").config.num_hidden_layers == 2


def test_soft_targets_alone_carry_the_task(made, teacher):
    """The student never sees a label."""
    result = tune(made, "soft", *LEARN, *teacher, "--soft_weight", "1.0", encoder="bert")
    assert result["dev"]["accuracy"] > 0.9


def test_a_student_of_another_width_learns(made, teacher, monkeypatch):
    config = json.loads((made / "deep" / "config.json").read_text())
    config |= {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}
    ElectraForPreTraining(ElectraConfig(**config)).save_pretrained(made / "narrow")
    shutil.copy(made / "deep" / "tokenizer.json", made / "narrow")
    losses = []

    class Kept(distillation.DistillationLoss):
        def __init__(self, *given):
            super().__init__(*given)
            losses.append((self, [p.detach().clone() for p in self.parameters()]))

    monkeypatch.setattr("amazon_electra.model.finetuning.fit.DistillationLoss", Kept)
    tune(made, "narrower", *teacher, *INSIDE, encoder="narrow")
    load_whole(made / "narrower")
    [(loss, before)] = losses
    assert [p.shape for p in before] == [(32, 16), (32,)]
    assert all(not torch.equal(p, q) for p, q in zip(loss.parameters(), before, strict=True))


def test_hidden_losses_need_the_same_tokens(made, teacher):
    """The teacher would be shown the ids of another vocabulary."""
    tokenizer = json.loads((made / "deep" / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    (a, i), (b, j) = list(vocabulary.items())[-2:]
    vocabulary |= {a: j, b: i}
    shutil.copytree(made / "deep", made / "other-words")
    (made / "other-words" / "tokenizer.json").write_text(json.dumps(tokenizer))
    for option in ("--hidden-weight", "--attention-weight"):
        with refuses(field=option):
            tune(made, "of-others", *teacher, option, "1.0", encoder="other-words")
    assert tune(made, "of-others", *teacher, encoder="other-words")["teacher"]


def test_a_student_begins_with_named_layers(made, teacher):
    whole = distillation.cut_teacher(made / "teacher", "layers:4")
    student = distillation.cut_teacher(made / "teacher", "layers:2")
    layers, places = whole.electra.encoder.layer, choose_layers("layers:2", 4)
    assert places == [0, 2]
    for layer, place in zip(student.electra.encoder.layer, places, strict=True):
        torch.testing.assert_close(layer.state_dict(), layers[place].state_dict())
    assert student.config.num_hidden_layers == 2
    wet = distillation.cut_teacher(made / "teacher", "half", dropout=0.3)
    assert {module.p for module in wet.modules() if isinstance(module, torch.nn.Dropout)} == {0.3}
