"""What a step adds up: equal for a batch and for its parts, and the means that are logged of it."""

import pytest
import torch

from amazon_electra.model.pretraining.input.batches import split_batch
from amazon_electra.model.pretraining.network import electra
from amazon_electra.model.pretraining.network.masked_prediction import Batch, PretrainingModel
from tests.model.pretraining.runs import SHAPE, build
from tests.model.synthetic_shards import write_shards

SETTINGS = SHAPE | {"dropout": 0, "mask_probability": 0.3}
WEIGHTS = {"generator_weight": 2, "discriminator_weight": 30}


@pytest.fixture
def start(tmp_path):
    """Return what gives a model of an objective with its initial weights, and a batch."""

    def build_both(objective) -> tuple[PretrainingModel, Batch]:
        more = WEIGHTS if objective == "electra" else {}
        shards = write_shards(tmp_path / "shards", sequences=32, length=64)
        training = build(shards, tmp_path, objective=objective, **SETTINGS | more)
        arrays = next(training.batches.iterate_steps(0))
        return training.model.eval(), training.batches.mask(training.device.put(arrays))

    return build_both


@pytest.mark.parametrize("objective", ["electra", "mlm", "mlm+nsp"])
def test_the_parts_of_a_batch_add_up_to_it(objective, start):
    model, batch = start(objective)
    whole = model(batch)
    parts = [model(part) for part in split_batch(batch, 3)]
    assert sum(part.loss.item() for part in parts) == pytest.approx(whole.loss.item(), rel=1e-5)
    for name, total in whole.sums.items():
        added = sum(float(part.sums[name]) for part in parts)
        assert added == pytest.approx(float(total), rel=1e-5), name
    sums = {name: float(total) for name, total in whole.sums.items()}
    means = model.compute_means(sums)
    assert means["loss"] == pytest.approx(whole.loss.item(), rel=1e-5)
    assert sums["real"] == (batch["documents"] > 0).sum()
    assert sums["masked"] == batch["masked_weights"].sum()
    doubled = model.compute_means({name: 2 * total for name, total in sums.items()})
    assert doubled == pytest.approx(means), "means of two equal steps"


def test_detections_are_counted_among_real_tokens():
    logits = torch.tensor([[3.0, -1.0, 0.5, -2.0, 9.0], [-0.1, 0.1, 0.0, 2.0, -5.0]])
    replaced = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0, 0.0]])
    real = torch.tensor([[1.0, 1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 0.0]])
    counts = electra._count_detections(logits, replaced, real)
    assert {name: float(count) for name, count in counts.items()} == {
        "real": 8,
        "discriminator_right": 5,
        "replaced": 5,
        "said_replaced": 4,
        "found": 3,
    }


def test_means_of_electra_are_of_masked_and_of_real_tokens(start):
    model, _ = start("electra")
    sums = {"masked": 10.0, "generator_loss": 25.0, "generator_right": 4.0, "real": 80.0}
    sums |= {"discriminator_loss": 20.0, "discriminator_right": 60.0, "replaced": 8.0}
    means = model.compute_means(sums | {"said_replaced": 16.0, "found": 6.0})
    assert means == {
        "loss": 2 * 2.5 + 30 * 0.25, "generator_loss": 2.5, "generator_accuracy": 0.4,
        "discriminator_loss": 0.25, "discriminator_accuracy": 0.75,
        "discriminator_precision": 0.375, "discriminator_recall": 0.75, "replaced_fraction": 0.1,
    }  # fmt: skip


def test_means_of_pairs_are_of_pairs(start):
    model, _ = start("mlm+nsp")
    sums = {"masked": 4.0, "mlm_loss": 6.0, "mlm_right": 1.0, "real": 9.0}
    pairs = {"pairs": 8.0, "pair_loss": 4.0, "pair_right": 6.0}
    assert model.compute_means(sums | pairs) == {
        "loss": 2.0,
        "mlm_loss": 1.5,
        "mlm_accuracy": 0.25,
        "nsp_loss": 0.5,
        "nsp_accuracy": 0.75,
    }
    assert model.compute_means(sums) == {"loss": 1.5, "mlm_loss": 1.5, "mlm_accuracy": 0.25}


def test_the_pair_loss_is_cross_entropy_over_the_pairs_there_are(start):
    model, batch = start("mlm+nsp")
    states = torch.randn(*batch["input_ids"].shape, 32, generator=torch.Generator().manual_seed(0))
    loss, sums = model._score_pairs(model.pair_head, states, batch)
    expected, right = 0.0, 0
    for i in range(len(states)):
        for slot, weight in enumerate(batch["pair_weights"][i]):
            if weight:
                logits = model.pair_head(states[i, batch["pair_places"][i, slot]][None])[0]
                label = int(batch["pair_not_next"][i, slot])
                expected -= float(torch.log_softmax(logits, 0)[label])
                right += int(logits.argmax()) == label
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(sums["pairs"]) == batch["pair_weights"].sum() > 8
    assert float(sums["pair_right"]) == right
