"""Batches, and trainings that go on after a kill, or diverge."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, ElectraConfig

from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.device import open_device
from amazon_electra.model.finetuning import training as loop
from amazon_electra.model.finetuning.features import (
    Feature,
    collate_features,
    draw_training_batches,
)
from amazon_electra.model.finetuning.training import read_checkpoint_step


def features(lengths):
    return [Feature(i, [[7] * n], [[0] * n], i % 2) for i, n in enumerate(lengths)]


def test_batches_hold_every_example_once():
    lengths = np.random.default_rng(0).integers(5, 128, 1000)
    batches = draw_training_batches(lengths, 32, np.random.default_rng(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    padded = sum(len(b) * max(lengths[b]) for b in batches)
    assert padded < 1.1 * lengths.sum()
    again = draw_training_batches(lengths, 32, np.random.default_rng(1))
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    assert [max(lengths[b]) for b in batches] != sorted(max(lengths[b]) for b in batches)


def test_padding_is_masked():
    inputs, targets = collate_features(features([3, 5]), "classification", pad_id=9)
    assert inputs["input_ids"].tolist() == [[7, 7, 7, 9, 9], [7] * 5]
    assert inputs["attention_mask"].sum(1).tolist() == [3, 5]
    assert targets.tolist() == [0, 1]


def tiny_training(tmp_path, epochs=6.0, scores=None, **changes):
    scores = iter(scores or [])
    settings = FinetuningSettings(
        epochs=epochs,
        batch=16,
        layer_decay=1.0,
        evaluations_per_epoch=1,
        **changes,
    )
    return loop.TrainingSetup(
        features=features(np.random.default_rng(0).integers(5, 20, 64)),
        shape="classification",
        settings=settings,
        seed=0,
        device=open_device("cpu", "fp32"),
        score_dev=lambda model: {"accuracy": next(scores, 0.5)},
        report=lambda step, numbers: None,
        checkpoint=tmp_path / "checkpoints",
    )


@pytest.mark.parametrize(("least", "steps"), [(0, 8), (100, 8), (640, 40), (10_000, 80)])
def test_few_examples_are_gone_through_more_often(tmp_path, least, steps):
    assert tiny_training(tmp_path, epochs=2.0, least_examples=least).steps == steps


def tiny_model():
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 1}
    config = ElectraConfig(**shape, num_attention_heads=2, intermediate_size=16)
    return AutoModelForSequenceClassification.from_config(config)


class Killed(Exception):
    pass


@pytest.fixture
def always_saved(monkeypatch):
    """A checkpoint after every step."""
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(loop, "CHECKPOINT_SHARE", 0.0)


def test_a_killed_training_goes_on_the_same(tmp_path, always_saved, monkeypatch):
    """Dropout included: the weights at the end are the same to the bit, and so are the numbers of
    the log.
    """
    told = {"whole": [], "killed": []}

    def training(name):
        return replace(
            tiny_training(tmp_path / name),
            report=lambda step, numbers: told[name].append((step, numbers)),
        )

    whole = tiny_model()
    loop.train(whole, training("whole"), 1e-3)
    step, taken = loop._train_step, []

    def die_in_the_tenth(*given):
        taken.append(1)
        if len(taken) == 10:
            raise Killed
        return step(*given)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "_train_step", die_in_the_tenth)
        with pytest.raises(Killed):
            loop.train(tiny_model(), training("killed"), 1e-3)
    assert read_checkpoint_step(tmp_path / "killed" / "checkpoints") == 9
    resumed = tiny_model()
    loop.train(resumed, training("killed"), 1e-3)
    assert [s for s, _ in told["killed"]] == [4, 8, 12, 16, 20, 24]
    assert told["killed"] == told["whole"]
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


def train_weights(tmp_path, seed=0, **settings):
    """Weights after a training without dropout, all in one row."""
    model = tiny_model()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    training = replace(tiny_training(tmp_path, epochs=1.0, **settings), seed=seed, checkpoint=None)
    loop.train(model, training, 1e-3)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_gradients_are_clipped(tmp_path):
    """AdamW hides the size of gradients but for its epsilon of 1e-6: clipped to 1e-9 they move
    next to nothing.
    """
    start = torch.cat([parameter.detach().flatten() for parameter in tiny_model().parameters()])
    free, clipped = (train_weights(tmp_path, clip=clip) for clip in (0.0, 1e-9))
    assert float((free - start).abs().max()) > 1e-3
    assert float((clipped - start).abs().max()) < 1e-5
