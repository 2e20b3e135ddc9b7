"""Batches, and trainings that go on after a kill, or diverge."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForSequenceClassification, ElectraConfig

from amazon_electra.model import runtime
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.device import open_device
from amazon_electra.model.finetuning import features as reading
from amazon_electra.model.finetuning import training as loop


def features(lengths):
    return [reading.Feature(i, [[7] * n], [[0] * n], i % 2) for i, n in enumerate(lengths)]


def test_batches_hold_every_example_once():
    lengths = np.random.default_rng(0).integers(5, 128, 1000)
    batches = reading.draw_training_batches(lengths, 32, np.random.default_rng(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    padded = sum(len(b) * max(lengths[b]) for b in batches)
    assert padded < 1.1 * lengths.sum()
    again = reading.draw_training_batches(lengths, 32, np.random.default_rng(1))
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    assert [max(lengths[b]) for b in batches] != sorted(max(lengths[b]) for b in batches)


def test_padding_is_masked():
    inputs, targets = reading.collate_features(features([3, 5]), "classification", pad_id=9)
    assert inputs["input_ids"].tolist() == [[7, 7, 7, 9, 9], [7] * 5]
    assert inputs["attention_mask"].sum(1).tolist() == [3, 5]
    assert targets.tolist() == [0, 1]


def tiny_training(tmp_path, epochs=6.0, scores=None, **changes):
    scores = iter(scores or [])
    often = {"layer_decay": 1.0, "evaluations_per_epoch": 1}
    settings = FinetuningSettings(epochs=epochs, batch=16, **often, **changes)
    return loop.TrainingSetup(
        features=features(np.random.default_rng(0).integers(5, 20, 64)),
        shape="classification",
        settings=settings,
        seed=0,
        device=open_device("cpu", "fp32"),
        score_dev=lambda model: {"accuracy": next(scores, 0.5)},
        checkpoint=tmp_path / "checkpoints",
    )


@pytest.mark.parametrize(("least", "steps"), [(0, 8), (100, 8), (640, 40), (10_000, 80)])
def test_few_examples_are_gone_through_more_often(tmp_path, least, steps):
    assert tiny_training(tmp_path, epochs=2.0, least_examples=least).steps == steps


def tiny_model(layers=1):
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "embedding_size": 8, "hidden_size": 16, "num_hidden_layers": layers}
    config = ElectraConfig(**shape, num_attention_heads=2, intermediate_size=16)
    return AutoModelForSequenceClassification.from_config(config)


def test_a_killed_training_goes_on_the_same(tmp_path, monkeypatch):
    """Dropout included: the weights at the end are the same to the bit, and so are the numbers of
    the log.
    """
    monkeypatch.setattr(runtime, "CHECKPOINT_SECONDS", 0.0)
    reports = {"whole": [], "killed": []}

    def training(name):
        return replace(
            tiny_training(tmp_path / name),
            report=lambda step, numbers: reports[name].append((step, numbers)),
        )

    whole = tiny_model()
    loop.train(whole, training("whole"), 1e-3)
    step, taken = loop._train_step, []

    def die_in_the_tenth(*given):
        taken.append(1)
        if len(taken) == 10:
            raise KeyboardInterrupt
        return step(*given)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "_train_step", die_in_the_tenth)
        with pytest.raises(KeyboardInterrupt):
            loop.train(tiny_model(), training("killed"), 1e-3)
    assert runtime.find_newest_step(tmp_path / "killed" / "checkpoints") == 9
    resumed = tiny_model()
    loop.train(resumed, training("killed"), 1e-3)
    assert [s for s, _ in reports["killed"]] == [4, 8, 12, 16, 20, 24]
    assert reports["killed"] == reports["whole"]
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name


@pytest.mark.parametrize("what", ["loss", "weights", "score"])
def test_a_diverged_training_keeps_its_best_state(tmp_path, monkeypatch, what):
    """After the second evaluation nothing is a number any more."""
    step, taken = loop._train_step, []

    def diverging(model, *others):
        taken.append(1)
        loss = step(model, *others)
        if what == "weights" and len(taken) == 9:
            next(model.parameters()).data.fill_(torch.nan)
        return loss * (torch.nan if what == "loss" and len(taken) > 8 else 1.0)

    monkeypatch.setattr(loop, "_train_step", diverging)
    scores = [0.6, 0.7, *([float("nan")] if what == "score" else [0.8] * 4)]
    attempt = loop.train(tiny_model(), tiny_training(tmp_path, scores=scores), 1e-3)
    assert (attempt.diverged, attempt.steps, attempt.best_step) == (True, 12, 8)
    assert attempt.dev == {"accuracy": 0.7}
    assert all(weight.isfinite().all() for weight in attempt.state.values())


def test_rates_fall_from_the_head_down():
    """The task head is at depth layers + 2 there, the top layer at depth layers: two decays lie
    between them (google-research/electra, model/optimization.py).
    """
    model = tiny_model(layers=3)
    learning = torch.nn.ModuleList([model])
    settings = FinetuningSettings(layer_decay=0.5, weight_decay=0.1)
    made = loop.build_optimizer(learning, settings, 1.0, fused=False)
    rates = {
        id(p): (group["lr"], group["weight_decay"])
        for group in made.param_groups
        for p in group["params"]
    }
    named = dict(model.named_parameters())
    assert len(rates) == len(named)
    assert rates[id(named["classifier.dense.weight"])] == (1.0, 0.1)
    assert rates[id(named["electra.encoder.layer.2.intermediate.dense.weight"])] == (0.25, 0.1)
    assert rates[id(named["electra.encoder.layer.0.intermediate.dense.bias"])] == (0.0625, 0.0)
    assert rates[id(named["electra.embeddings.word_embeddings.weight"])] == (0.03125, 0.1)
    assert rates[id(named["electra.embeddings.LayerNorm.weight"])] == (0.03125, 0.0)
    assert rates[id(named["electra.embeddings_project.weight"])] == (0.03125, 0.1)
    loop.freeze_layers(model, 0.33)
    learns = {name for name, one in named.items() if one.requires_grad}
    frozen = ("electra.embeddings", "electra.encoder.layer.0.")
    assert learns == {name for name in named if not name.startswith(frozen)}


def test_the_rate_rises_and_falls_in_lines():
    """Without warm-up the first step has the whole rate, and so has the only one of a training."""
    group = {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 1.0, "peak": 1.0}
    sgd = torch.optim.SGD([group])

    def compute_rates(steps, warmup):
        for step in range(steps):
            loop.set_learning_rate(sgd, step, steps, warmup)
            yield loop.get_learning_rate(sgd)

    rates = list(compute_rates(20, 0.2))
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates[4:] == pytest.approx([i / 16 for i in range(16, 0, -1)])
    assert list(compute_rates(4, 0.0)) == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert list(compute_rates(1, 0.1)) == [1.0]


LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 0.3], [-1.0, 3.0, 0.0]])
LABELS = torch.tensor([0, 2, 0])
EACH = F.cross_entropy(LOGITS, LABELS, reduction="none")
SHARES = LOGITS.softmax(1)[range(3), LABELS]
WEIGHTS = torch.tensor([6 / 9, 2.0, 1.0])
FOCAL = {"loss": "focal", "focal_gamma": 2.0, "focal_alpha": (0.2, 0.5, 0.3)}
ALPHAS, ONE_ALPHAS = torch.tensor([0.2, 0.3, 0.2]), torch.tensor([0.75, 0.25, 0.25])
ONE_ALPHA = {"loss": "focal", "focal_gamma": 0.0, "focal_alpha": (0.25,)}
OF_TWO = F.cross_entropy(LOGITS[:, :2], torch.tensor([0, 1, 1]), reduction="none")


@pytest.mark.parametrize(
    ("classes", "labels", "settings", "weights", "expected"),
    [
        # Lin's equation 5, a weight for each class; of two classes that of the second is enough
        (3, LABELS, FOCAL, None, (ALPHAS * (1 - SHARES) ** 2 * EACH).mean()),
        (2, torch.tensor([0, 1, 1]), ONE_ALPHA, None, (ONE_ALPHAS * OF_TWO).mean()),
        (3, LABELS, {}, WEIGHTS, F.cross_entropy(LOGITS, LABELS, weight=WEIGHTS)),
        (3, torch.tensor([0, loop.IGNORED, 0]), {}, None, EACH[[0, 2]].mean()),
    ],
    ids=["focal", "one alpha", "class weights", "ignored labels"],
)
def test_losses_are_as_published(classes, labels, settings, weights, expected):
    given = FinetuningSettings(**settings)
    found = loop.compute_classification_loss(LOGITS[:, :classes], labels, given, weights)
    assert found == pytest.approx(float(expected))
