"""The card of an exported encoder: what it is, what it was trained on, and what nobody knows."""

from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from model.origin import run as bring
from model.pretrain import run
from tests.model.encoders.checkpoints import write_checkpoint
from tests.model.synthetic_shards import write_shards

SHAPE = ("layers=1", "hidden=32", "intermediate=64", "embedding=32", "heads=2")


def train(folder, name, *more, start=None):
    """Train for one step; the card of the encoder that comes out, and its folder."""
    words = ["--shards", str(folder / "shards"), "--output", str(folder / name)]
    words += ["--recipe", "sample", "--device", "cpu", "--threads", "1", "--steps", "1"]
    words += ["--start-from", str(start)] if start else []
    sets = ("batch=4", "precision=fp32", *(() if start else SHAPE), *more)
    result = run([*words, *(word for one in sets for word in ("--set", one))])
    file = Path(result["encoder"]) / "README.md"
    return (
        file.read_text(),
        Path(result["encoder"]),
        yaml.safe_load(file.read_text().split("---")[1]),
    )


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path / "shards", sequences=16)


@pytest.fixture
def published(tmp_path, shards):
    """A published encoder with a card, and as the graph brings it."""
    source = write_checkpoint(tmp_path / "mini-bert")
    (source / "README.md").write_text("---\nlicense: mit\ndatasets: [books, wiki]\n---\n# M\n")
    bring(["--place", str(source), "--output", str(tmp_path / "origin")])
    return source


@pytest.mark.parametrize("start", ["origin", "mini-bert"])
def test_an_adapted_encoder_is_called_by_what_it_was(tmp_path, published, start):
    card, folder, front = train(tmp_path, "out", start=tmp_path / start)
    assert "# mini-bert, adapted: encoder" in card
    assert "Training began with mini-bert." in card
    for line in ("name: mini-bert", "licence: mit", "training data: books, wiki"):
        assert f"- origin's {line}" in card
    assert (front["license"], front["datasets"]) == ("mit", ["books", "wiki"])
    assert front["tags"] == ["bert", "reviews"]
    assert ModelCard.load(folder / "README.md").data.license == "mit"


def test_what_is_unknown_is_told_as_such(tmp_path, published):
    (published / "README.md").unlink()
    card, _, front = train(tmp_path, "out", start=published)
    assert "- origin's licence: unknown" in card
    assert "- origin's training data: unknown" in card
    assert "license" not in front


def test_a_later_training_tells_of_the_first_origin(tmp_path, published):
    _, first, _ = train(tmp_path, "first", start=published)
    card, _, front = train(tmp_path, "second", start=first)
    assert "# mini-bert, adapted: encoder" in card
    assert f"Training began with mini-bert, by way of `{first}`." in card
    assert front["license"] == "mit"
    _, own, _ = train(tmp_path, "own")
    card, _, _ = train(tmp_path, "after", start=own)
    assert "# ELECTRA discriminator, recipe sample" in card
    assert f"Training went on from an earlier one of ours, `{own}`." in card
    assert "unknown" not in card
