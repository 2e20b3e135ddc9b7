"""Losses against their formulas, layer-wise decay, warm-up, batches."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification, ElectraConfig

from model.command import UserMistake
from model.device import open_device
from model.finetuning import checkpoint, loop, losses
from model.finetuning.attempt import rank
from model.finetuning.batches import Feature, collate, training_batches
from model.finetuning.config import FinetuningSettings
from model.finetuning.distillation import layer_pairs, soft_loss
from model.finetuning.examples import Task

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3], [-1.0, 3.0, 0.0]])
LABELS = torch.tensor([0, 2, 0])


def test_focal_loss_is_lins_formula():
    """Equation 5, a weight for each class."""
    settings = FinetuningSettings(loss="focal", focal_alpha=(0.2, 0.5, 0.3), focal_gamma=2.0)
    p = LOGITS.softmax(1)[range(3), LABELS]
    alpha = torch.tensor([0.2, 0.3, 0.2])
    expected = (-alpha * (1 - p) ** 2 * p.log()).mean()
    assert losses.classification(LOGITS, LABELS, settings) == pytest.approx(float(expected))


def test_one_alpha_is_that_of_the_second_class():
    settings = FinetuningSettings(loss="focal", focal_alpha=(0.25,), focal_gamma=0.0)
    logits, labels = LOGITS[:, :2], torch.tensor([0, 1, 1])
    each = F.cross_entropy(logits, labels, reduction="none")
    expected = (torch.tensor([0.75, 0.25, 0.25]) * each).mean()
    assert losses.classification(logits, labels, settings) == pytest.approx(float(expected))


def test_settings_of_a_run_are_read_back(tmp_path):
    settings = FinetuningSettings(loss="focal", focal_alpha=FinetuningSettings.parse("focal_alpha", "0.25"))
    assert settings.focal_alpha == (0.25,)
    assert FinetuningSettings.of_run({"settings": json.loads(json.dumps(asdict(settings)))}) == settings


@pytest.mark.parametrize(
    ("shape", "settings", "words"),
    [
        ("span", {"loss": "focal"}, "loss has no effect on t, a task of shape span"),
        ("regression", {"loss": "focal"}, "loss has no effect"),
        ("tokens", {"class_weights": "balanced"}, "class_weights has no effect"),
        ("choice", {"clean": "letters"}, "clean has no effect"),
        ("choice", {"loss": "focal", "focal_alpha": (0.5,)}, "focal_alpha has no effect"),
        ("classification", {"focal_alpha": (0.5,)}, "without loss=focal"),
        ("classification", {"loss": "focal", "focal_alpha": (0.5,)}, "a weight for each of the 3 classes a, b, c"),
    ],
)
def test_what_a_task_would_pass_over_is_refused(shape, settings, words):
    task = Task("t", shape, ("a", "b", "c"), ("accuracy",), lambda *_: [], "")
    with pytest.raises(UserMistake, match=words):
        FinetuningSettings(**settings).check(task)
    FinetuningSettings(loss="focal", focal_alpha=(0.1, 0.1, 0.8)).check(replace(task, shape="tokens"))


def test_focal_loss_without_focus_is_cross_entropy():
    settings = FinetuningSettings(loss="focal", focal_gamma=0.0)
    assert losses.classification(LOGITS, LABELS, settings) == pytest.approx(float(F.cross_entropy(LOGITS, LABELS)))


def test_class_weights_are_torchs():
    weights = losses.balanced_weights(np.array([0, 0, 0, 1, 2, 2]), 3)
    assert weights.tolist() == pytest.approx([6 / 9, 2.0, 1.0])
    expected = F.cross_entropy(LOGITS, LABELS, weight=weights)
    assert losses.classification(LOGITS, LABELS, FinetuningSettings(), weights) == pytest.approx(float(expected))


def test_ignored_labels_count_for_nothing():
    labels = torch.tensor([0, losses.IGNORED, 0])
    expected = F.cross_entropy(LOGITS[[0, 2]], labels[[0, 2]])
    assert losses.classification(LOGITS, labels, FinetuningSettings()) == pytest.approx(float(expected))


def test_soft_targets_keep_the_size_of_gradients():
    """At a high temperature T² · KL tends to the squared difference of centred logits / (2 · classes) (Hinton)."""
    student, teacher = LOGITS, LOGITS.flip(0)
    settings = FinetuningSettings(temperature=500.0)
    centred = (student - student.mean(1, keepdim=True)) - (teacher - teacher.mean(1, keepdim=True))
    expected = (centred**2).sum(1).mean() / (2 * 3)
    assert float(soft_loss(student, teacher, settings, "classification")) == pytest.approx(float(expected), rel=0.02)
    assert float(soft_loss(student, student, settings, "classification")) == pytest.approx(0.0, abs=1e-5)


def test_layers_are_paired_to_the_top():
    assert layer_pairs(3, 6) == [(0, 1), (1, 3), (2, 5)]
    assert layer_pairs(3, 6, embeddings=True) == [(0, 0), (1, 2), (2, 4), (3, 6)]
    assert layer_pairs(6, 12) == [(i, 2 * i + 1) for i in range(6)]


@pytest.mark.parametrize(("student", "teacher"), [(3, 1), (4, 2), (6, 3), (12, 4)])
def test_a_student_deeper_than_its_teacher_begins_with_the_first_layer(student, teacher):
    of_layers = layer_pairs(student, teacher)
    assert (of_layers[0], of_layers[-1]) == ((0, 0), (student - 1, teacher - 1))
    assert {j for _, j in of_layers} == set(range(teacher))
    of_states = layer_pairs(student, teacher, embeddings=True)
    assert of_states == [(0, 0), *((i + 1, j + 1) for i, j in of_layers)]


def test_the_top_layer_learns_at_the_rate_times_the_decay():
    config = ElectraConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=16,
    )
    model = AutoModelForSequenceClassification.from_config(config)
    learning = torch.nn.ModuleList([model])
    optimizer = loop._optimizer(learning, FinetuningSettings(layer_decay=0.5, weight_decay=0.1), 1.0)
    rates = {id(p): (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    named = dict(model.named_parameters())
    assert len(rates) == len(named)
    assert rates[id(named["classifier.dense.weight"])] == (1.0, 0.1)
    assert rates[id(named["electra.encoder.layer.2.intermediate.dense.weight"])] == (0.5, 0.1)
    assert rates[id(named["electra.encoder.layer.0.intermediate.dense.bias"])] == (0.125, 0.0)
    assert rates[id(named["electra.embeddings.word_embeddings.weight"])] == (0.0625, 0.1)
    assert rates[id(named["electra.embeddings.LayerNorm.weight"])] == (0.0625, 0.0)


def test_the_rate_rises_and_falls_in_lines():
    optimizer = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 1.0, "peak": 1.0}])
    rates = []
    for step in range(20):
        loop._set_learning_rate(optimizer, step, 20, 0.2)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates[4:] == pytest.approx([i / 16 for i in range(16, 0, -1)])


def features(lengths):
    return [Feature(i, [[7] * n], [[0] * n], i % 2) for i, n in enumerate(lengths)]


def test_grouped_batches_hold_every_example_once_and_little_padding():
    lengths = np.random.default_rng(0).integers(5, 128, 1000)
    made = features(lengths)
    batches = training_batches(made, 32, np.random.default_rng(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    padded = sum(len(b) * max(lengths[b]) for b in batches)
    assert padded < 1.1 * lengths.sum()
    again = training_batches(made, 32, np.random.default_rng(1))
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    assert [max(lengths[b]) for b in batches] != sorted(max(lengths[b]) for b in batches)


def test_padding_is_masked():
    inputs, targets = collate(features([3, 5]), "classification", pad_id=9)
    assert inputs["input_ids"].tolist() == [[7, 7, 7, 9, 9], [7] * 5]
    assert inputs["attention_mask"].sum(1).tolist() == [3, 5]
    assert targets.tolist() == [0, 1]


def tiny_training(tmp_path, patience=None, epochs=6.0, scores=None, **changes):
    scores = iter(scores or [])
    settings = FinetuningSettings(
        epochs=epochs, batch=16, layer_decay=1.0, patience=patience, evaluations_per_epoch=1, **changes
    )
    return loop.Training(
        features=features(np.random.default_rng(0).integers(5, 20, 64)),
        shape="classification",
        settings=settings,
        seed=0,
        device=open_device("cpu", "fp32"),
        dev_score=lambda model: {"accuracy": next(scores, 0.5)},
        report=lambda step, numbers: None,
        checkpoint=tmp_path / "checkpoint.pt",
    )


def tiny_model():
    torch.manual_seed(0)
    config = ElectraConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    return AutoModelForSequenceClassification.from_config(config)


class Killed(Exception):
    pass


@pytest.fixture
def always_saved(monkeypatch):
    """A checkpoint after every step."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", 0.0)


def test_a_killed_training_goes_on_as_if_it_had_not_been(tmp_path, always_saved, monkeypatch):
    """Dropout included: the weights at the end are the same to the bit, and so are the numbers of the log."""
    told = {"whole": [], "killed": []}

    def training(name):
        return replace(tiny_training(tmp_path / name), report=lambda step, numbers: told[name].append((step, numbers)))

    whole = tiny_model()
    loop.train(whole, training("whole"), 1e-3)
    step, taken = loop._step, []

    def die_in_the_tenth(*given):
        taken.append(1)
        if len(taken) == 10:
            raise Killed
        return step(*given)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "_step", die_in_the_tenth)
        with pytest.raises(Killed):
            loop.train(tiny_model(), training("killed"), 1e-3)
    assert checkpoint.step_of(tmp_path / "killed" / "checkpoint.pt") == 9
    resumed = tiny_model()
    loop.train(resumed, training("killed"), 1e-3)
    assert [s for s, _ in told["killed"]] == [4, 8, 12, 16, 20, 24]
    assert told["killed"] == told["whole"]
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name


@pytest.mark.parametrize("what", ["loss", "weights", "score"])
def test_a_training_that_diverges_is_given_up_with_its_best_state(tmp_path, monkeypatch, what):
    """After the second evaluation nothing is a number any more."""
    step, taken = loop._step, []

    def diverging(model, *others):
        taken.append(1)
        loss = step(model, *others)
        if what == "weights" and len(taken) == 9:
            next(model.parameters()).data.fill_(torch.nan)
        return loss * (torch.nan if what == "loss" and len(taken) > 8 else 1.0)

    monkeypatch.setattr(loop, "_step", diverging)
    scores = [0.6, 0.7, *([float("nan")] if what == "score" else [0.8] * 4)]
    attempt = loop.train(tiny_model(), tiny_training(tmp_path, scores=scores), 1e-3)
    assert (attempt.diverged, attempt.steps, attempt.best_step) == (True, 12, 8)
    assert attempt.dev == {"accuracy": 0.7}
    assert all(weight.isfinite().all() for weight in attempt.state.values())
    assert rank({"accuracy": float("nan")}) < rank({"accuracy": 0.0, "loss": float("nan")}) < rank({"accuracy": 0.0})


def test_training_stops_when_dev_no_longer_improves(tmp_path):
    training = tiny_training(tmp_path, patience=2, scores=[0.6, 0.8, 0.7, 0.7, 0.9])
    attempt = loop.train(tiny_model(), training, 1e-3)
    assert (attempt.steps, attempt.best_step) == (16, 8)
    assert attempt.dev == {"accuracy": 0.8}
