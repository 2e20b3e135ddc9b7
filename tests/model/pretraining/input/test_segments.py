"""Documents cut into segments A and B."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from amazon_electra.model.pretraining.input.sequences import Shards, Stream
from tests.model.pretraining.runs import SHAPE, build, pretrain
from tests.model.synthetic_shards import write_shards


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=128, length=64)


def test_half_of_the_documents_are_cut(shards, tmp_path):
    arrays = next(build(shards, tmp_path, **SHAPE | {"batch": 64}).batches.iterate_steps(0))
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


@pytest.mark.parametrize(("probability", "are_equal"), [(0, True), (0.5, False)])
def test_an_untrained_type_is_exported_as_type_0(shards, tmp_path, probability, are_equal):
    pretrain(shards, tmp_path, steps=2, segment_probability=probability, **SHAPE)
    for network in ("discriminator", "generator"):
        weights = load_file(tmp_path / network / "model.safetensors")
        types = weights["electra.embeddings.token_type_embeddings.weight"]
        assert torch.equal(types[0], types[1]) == are_equal
