"""A teacher's folder in, a smaller student's folder out."""

import json
import shutil

import pytest
import torch
from transformers import ElectraConfig, ElectraForPreTraining

from amazon_electra.model.finetuning import distillation
from amazon_electra.model.finetuning.request import choose_layers
from tests.model.corpora import write_bert, write_corpus, write_electra
from tests.model.finetuning.few_steps import LEARN, load_whole, tune
from tests.refusals import refuses


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distillation")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    write_corpus(folder / "corpus")
    write_electra(folder / "electra", layers=4)
    write_bert(folder / "bert")
    tune(folder, "teacher-cls", *LEARN)
    return folder


def test_half_a_teacher(made):
    inside = ("--hidden_weight", "1.0", "--attention_weight", "1.0")
    teacher = ["--teacher", str(made / "teacher-cls")]
    result = tune(made, "half-cls", *teacher, *inside, encoder="half")
    whole = json.loads((made / "teacher-cls" / "result.json").read_text())
    assert result["parameters"] < whole["parameters"]
    assert load_whole(made / "half-cls").config.num_hidden_layers == 2


def test_soft_targets_alone_carry_the_task(made):
    """The student never sees a label."""
    teacher = ["--teacher", str(made / "teacher-cls"), "--soft_weight", "1.0"]
    result = tune(made, "soft", *LEARN, *teacher, encoder="bert")
    assert result["dev"]["accuracy"] > 0.9


def test_a_student_of_another_width_learns(made, monkeypatch):
    config = json.loads((made / "electra" / "config.json").read_text())
    config |= {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}
    ElectraForPreTraining(ElectraConfig(**config)).save_pretrained(made / "narrow")
    shutil.copy(made / "electra" / "tokenizer.json", made / "narrow")
    teacher = ["--teacher", str(made / "teacher-cls")]
    teacher += ["--hidden_weight", "1.0", "--attention_weight", "1.0"]
    losses = []

    class Kept(distillation.DistillationLoss):
        def __init__(self, *given):
            super().__init__(*given)
            losses.append((self, [p.detach().clone() for p in self.parameters()]))

    monkeypatch.setattr("amazon_electra.model.finetuning.fit.DistillationLoss", Kept)
    tune(made, "narrower", *teacher, encoder="narrow")
    load_whole(made / "narrower")
    [(loss, before)] = losses
    assert [p.shape for p in before] == [(32, 16), (32,)]
    assert all(not torch.equal(p, q) for p, q in zip(loss.parameters(), before, strict=True))


def test_hidden_losses_need_the_same_tokens(made):
    """The teacher would be shown the ids of another vocabulary."""
    tokenizer = json.loads((made / "electra" / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    (a, i), (b, j) = list(vocabulary.items())[-2:]
    vocabulary |= {a: j, b: i}
    shutil.copytree(made / "electra", made / "other-words")
    (made / "other-words" / "tokenizer.json").write_text(json.dumps(tokenizer))
    teacher = ["--teacher", str(made / "teacher-cls")]
    for option in ("--hidden-weight", "--attention-weight"):
        with refuses(field=option):
            tune(made, "other", *teacher, option, "1.0", encoder="other-words")
    assert tune(made, "other", *teacher, encoder="other-words")["teacher"]


def test_a_student_begins_with_named_layers(made):
    teacher = distillation.cut_teacher(made / "teacher-cls", "layers:4")
    student = distillation.cut_teacher(made / "teacher-cls", "layers:2")
    layers, places = teacher.electra.encoder.layer, choose_layers("layers:2", 4)
    assert places == [0, 2]
    for layer, place in zip(student.electra.encoder.layer, places, strict=True):
        torch.testing.assert_close(layer.state_dict(), layers[place].state_dict())
    assert student.config.num_hidden_layers == 2
    wet = distillation.cut_teacher(made / "teacher-cls", "half", dropout=0.3)
    assert {module.p for module in wet.modules() if isinstance(module, torch.nn.Dropout)} == {0.3}
