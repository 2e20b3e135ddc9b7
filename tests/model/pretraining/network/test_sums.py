"""What a step adds up: equal for a batch and for its parts, and the means that are logged of it."""

import pytest

from amazon_electra.model.pretraining.input.batches import split_batch
from tests.model.pretraining.runs import SHAPE, build
from tests.model.synthetic_shards import write_shards

SETTINGS = SHAPE | {"dropout": 0, "mask_probability": 0.3}
WEIGHTS = {"generator_weight": 2, "discriminator_weight": 30}


@pytest.mark.parametrize("objective", ["electra", "mlm", "mlm+nsp"])
def test_parts_of_a_batch_add_up(objective, tmp_path):
    more = WEIGHTS if objective == "electra" else {}
    shards = write_shards(tmp_path / "shards", sequences=32, length=64)
    training = build(shards, tmp_path, objective=objective, **SETTINGS | more)
    model = training.model.eval()
    batch = training.batches.mask(training.device.put(next(training.batches.iterate_steps(0))))
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
