"""What a run leaves: the card, which says what nobody knows too, and the mirror in MLflow."""

import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model.encoders.vocabulary import find_special
from amazon_electra.model.origin import load_origin
from tests.model.encoders.checkpoints import write_checkpoint
from tests.model.pretraining.runs import SHAPE, pretrain
from tests.model.synthetic_shards import write_shards

SETTINGS = SHAPE | {"log_every": 2}


def test_the_card_tells_data_counts_and_lineage(shards, dev_shards, tmp_path):
    result = pretrain(shards, tmp_path / "out", "--validation", dev_shards, steps=10, **SETTINGS)
    for role in ("discriminator", "generator"):
        card = (Path(result[role]) / "README.md").read_text()
        assert card.startswith("---\nlibrary_name: transformers\n")
        for text in ("256 packed sequences", "10 steps", "80 sequences", "- shards: `"):
            assert text in card, text


def test_padding_is_the_tokenizers(shards, tmp_path):
    own = shutil.copytree(shards, tmp_path / "shards")
    file = own / "vocabulary" / "tokenizer_config.json"
    file.write_text(file.read_text().replace('"[PAD]"', '"word0"'))
    result = pretrain(own, tmp_path / "out", steps=10, **SETTINGS)
    for role in ("discriminator", "generator"):
        config = json.loads((Path(result[role]) / "config.json").read_text())
        assert config["pad_token_id"] == 5
    file.write_text(file.read_text().replace('"word0"', '"<pad>"'))
    assert find_special(file.parent, "pad") is None


@pytest.mark.parametrize("start", ["origin", "mini-bert"])
def test_an_adapted_encoder_keeps_its_name(tmp_path, start):
    """Of a published encoder with a card, as it is and as the graph brings it."""
    shards = write_shards(tmp_path / "shards", sequences=16)
    source = write_checkpoint(tmp_path / "mini-bert")
    (source / "README.md").write_text("---\nlicense: mit\ndatasets: [books, wiki]\n---\n# M\n")
    call_job(load_origin, ["--place", str(source), "--output", str(tmp_path / "origin")])
    begun = ("--start-from", tmp_path / start)
    result = pretrain(shards, tmp_path / "out", *begun, steps=1, batch=4)
    file = Path(result["encoder"], "README.md")
    card, data = file.read_text(), ModelCard.load(file).data
    assert "# mini-bert, adapted: encoder" in card
    assert "Training began with mini-bert." in card
    for line in ("name: mini-bert", "licence: mit", "training data: books, wiki"):
        assert f"- origin's {line}" in card
    assert (data.license, data.datasets) == ("mit", ["books", "wiki"])
    assert data.tags == ["bert", "reviews"]
