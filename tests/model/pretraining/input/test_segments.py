"""Documents cut into segments A and B."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from model.device import open_device
from model.pretrain import run
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards, Stream
from model.recipes import RECIPES, apply_settings
from tests.model.synthetic_shards import write_shards

SMALL = {"layers": "1", "hidden": "32", "intermediate": "64", "embedding": "32", "batch": "64"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=128, length=64)


def build(shards, output, **settings):
    recipe = apply_settings(RECIPES["sample"], SMALL | settings)
    return build_training(recipe, Shards.open(shards), open_device("cpu", "fp32"), output)


def test_half_of_the_documents_are_cut_at_a_sentence_start(shards, tmp_path):
    arrays = next(build(shards, tmp_path).batches.iterate_steps(0))
    rows = next(Stream(Shards.open(shards), 0).iterate_batches(0, 64))
    documents, types = arrays["documents"], arrays["types"]
    able, cut, places = 0, 0, set()
    for i in range(64):
        assert not types[i][documents[i] == 0].any()
        for number in set(documents[i][documents[i] > 0].tolist()):
            mine = np.flatnonzero(documents[i] == number)
            starts = [at for at in mine if rows.sentence_starts[i, at] and at > mine[0] + 1]
            able += bool(starts)
            assert (np.diff(types[i][mine]) >= 0).all()
            if types[i][mine].any():
                second = mine[types[i][mine] == 1][0]
                assert second in starts
                places.add(starts.index(second))
                cut += 1
    assert able > 100
    assert cut / able == pytest.approx(0.5, abs=0.12)
    assert places == {0, 1}


@pytest.mark.parametrize(("probability", "are_equal"), [("0", True), ("0.5", False)])
def test_a_type_that_was_never_trained_is_exported_as_type_0(
    shards, tmp_path, probability, are_equal
):
    sets = SMALL | {"segment_probability": probability, "batch": "8"}
    settings = [part for name, value in sets.items() for part in ("--set", f"{name}={value}")]
    fixed = ["--shards", str(shards), "--output", str(tmp_path), "--recipe", "sample"]
    run([*fixed, "--device", "cpu", "--threads", "1", "--steps", "2", *settings])
    for network in ("discriminator", "generator"):
        weights = load_file(tmp_path / network / "model.safetensors")
        types = weights["electra.embeddings.token_type_embeddings.weight"]
        assert torch.equal(types[0], types[1]) == are_equal
