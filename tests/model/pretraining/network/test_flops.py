import pytest
from torch.utils.flop_counter import FlopCounterMode

from amazon_electra.model.device import Device
from amazon_electra.model.pretraining.assembly import estimate_sequence_flops
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.model.pretraining.runs import build
from tests.model.synthetic_shards import write_shards

SMALL = {"layers": 2, "hidden": 64, "intermediate": 128, "heads": 2, "batch": 8}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return Shards.open(write_shards(tmp_path_factory.mktemp("shards"), sequences=64))


@pytest.mark.parametrize(
    ("objective", "settings"), [("electra", {"mask_probability": 0.25}), ("mlm", {"embedding": 32})]
)
def test_the_products_counted_are_those_torch_makes(shards, tmp_path, objective, settings):
    """Of packed rows: the dense attention of a CPU multiplies them whole."""
    training = build(shards, tmp_path, objective=objective, **SMALL | settings)
    arrays = next(training.batches.iterate_steps(0))
    training.model.train()
    with FlopCounterMode(display=False) as counter:
        training.model(training.batches.mask(training.device.put(arrays))).loss.backward()
    assert training.count_matrix_flops(arrays) == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("within_documents", [False, True])
def test_costs_are_estimated_as_they_are_counted(shards, tmp_path, monkeypatch, within_documents):
    monkeypatch.setattr(Device, "has_document_attention", within_documents)
    training = build(shards, tmp_path, **SMALL)
    recipe = apply_settings(RECIPES["sample"], {n: str(value) for n, value in SMALL.items()})
    batches = training.batches.iterate_steps(0)
    counted = sum(training.count_matrix_flops(next(batches)) for _ in range(8))
    estimated = estimate_sequence_flops(recipe, shards, within_documents)
    assert estimated * 64 == pytest.approx(counted)
