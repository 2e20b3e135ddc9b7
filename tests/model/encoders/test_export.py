"""The exported folders are what others load; network/test_reference.py has what they compute."""

import json
from pathlib import Path

import pytest
from transformers import AutoModel, ElectraForMaskedLM, ElectraForPreTraining

from amazon_electra.model.encoders.config import write_architecture
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.model.pretraining.runs import pretrain
from tests.model.synthetic_shards import write_shards

SETTINGS = {"layers": 2, "hidden": 64, "intermediate": 128, "precision": "fp32"}


@pytest.fixture(scope="module", params=[64, 32], ids=["without projection", "with projection"])
def trained(request, tmp_path_factory):
    """Five steps of training: the output folder and the result."""
    folder = tmp_path_factory.mktemp("pretrained")
    shards, output = write_shards(folder / "shards"), folder / "out"
    return output, pretrain(shards, output, steps=5, embedding=request.param, **SETTINGS)


@pytest.mark.parametrize(
    ("role", "loader"),
    [("discriminator", ElectraForPreTraining), ("generator", ElectraForMaskedLM)],
)
def test_no_weight_is_missing_or_unexpected(trained, role, loader):
    _, result = trained
    _, info = loader.from_pretrained(result[role], output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    _, bare = AutoModel.from_pretrained(result[role], output_loading_info=True)
    assert not bare["missing_keys"]


def test_a_random_encoder_has_config_and_tokenizer(trained, tmp_path):
    folder, result = trained
    width = json.loads((folder / "config.json").read_text())["architecture"]["embedding"]
    settings = {name: str(value) for name, value in (SETTINGS | {"embedding": width}).items()}
    recipe = apply_settings(RECIPES["sample"], settings)
    written = write_architecture(tmp_path / "a", recipe, Shards.open(folder.parent / "shards"))
    encoder = Path(result["discriminator"])
    described = [json.loads((one / "config.json").read_text()) for one in (written, encoder)]
    assert described[0] == described[1]
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        assert (written / file).read_bytes() == (encoder / file).read_bytes()
