"""What is learnt by default depends on what was loaded."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from amazon_electra.model.pretraining.defaults import choose_settings
from amazon_electra.model.recipes import NEW_HEAD_SETTINGS, OLD_HEAD_SETTINGS
from tests.model.encoders.checkpoints import write_checkpoint
from tests.model.pretraining.runs import pretrain, read_curve


@pytest.mark.parametrize(
    ("what", "changes", "objective", "rates"),
    [
        ("MiniLM, a bare trunk", {}, "mlm", NEW_HEAD_SETTINGS),
        ("BERT for both objectives", {}, "mlm", OLD_HEAD_SETTINGS),
        ("ELECTRA's generator", {}, "mlm", OLD_HEAD_SETTINGS),
        ("ELECTRA's discriminator", {}, None, OLD_HEAD_SETTINGS),
        ("BERT with its head", {"architectures": None}, "mlm", OLD_HEAD_SETTINGS),
        ("DistilBERT with its head", {"architectures": ["Other"]}, "mlm", OLD_HEAD_SETTINGS),
        ("MiniLM, a bare trunk", {"architectures": ["BertForMaskedLM"]}, "mlm", NEW_HEAD_SETTINGS),
        ("BERT with its head", {"tie_word_embeddings": False}, "mlm", NEW_HEAD_SETTINGS),
        ("ELECTRA's generator", {"tie_word_embeddings": False}, "mlm", NEW_HEAD_SETTINGS),
    ],
)
def test_objective_and_rates_by_kind_and_weights(tmp_path, what, changes, objective, rates):
    """A head that was published needs no steps of its own, whatever config.json says of heads; one
    with a table of its own has no place here, and a new one is learnt. A masked language model is
    used with token type 0 alone, and trained so.
    """
    folder = write_checkpoint(tmp_path, what, **changes)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    chosen = choose_settings(folder, {}, has_generator=True)
    as_used = {"objective": objective, "segment_probability": "0"} if objective else {}
    assert chosen == {**as_used, **rates}


def test_a_missing_generator_is_the_first_layers(tmp_path):
    folder = write_checkpoint(tmp_path, "ELECTRA's discriminator")
    cut = {"generator_multiplier": "1", "generator_layers": "1"}
    assert choose_settings(folder, {}) == {**cut, **OLD_HEAD_SETTINGS}
    assert choose_settings(folder, {}, has_generator=True) == OLD_HEAD_SETTINGS
    assert choose_settings(folder, {"generator_multiplier": "0.5"}) == OLD_HEAD_SETTINGS
    assert choose_settings(folder, {"learning_rate": "1e-4"}) == {**cut, "warmup": "0.1"}
    types = {"segment_probability": "0"}
    assert choose_settings(folder, {"objective": "mlm"}) == {**NEW_HEAD_SETTINGS, **types}


def test_a_discriminator_alone_makes_its_generator(shards, tmp_path):
    start = write_checkpoint(tmp_path / "electra", "ELECTRA's discriminator")
    settings = {"batch": 4, "log_every": 1, "precision": "fp32"}
    result = pretrain(shards, tmp_path / "out", "--start-from", start, steps=12, **settings)
    generator = load_file(Path(result["generator"]) / "model.safetensors")
    assert 4e-5 < max(read_curve(tmp_path / "out", "learning_rate").values()) <= 5e-5
    published = load_file(start / "model.safetensors")
    name = "electra.encoder.layer.0.output.dense.weight"
    torch.testing.assert_close(generator[name], published[name], atol=2e-3, rtol=0)
    assert not any(".layer.1." in name for name in generator)


@pytest.mark.parametrize("what", ["ELECTRA's generator", "ELECTRA's discriminator"])
def test_what_was_trained_here_keeps_its_recipe(tmp_path, what):
    """Unless a graph starts from it as from any published one, and so brought it with an
    origin.json.
    """
    folder = write_checkpoint(tmp_path, what, trained_length=32)
    assert set(choose_settings(folder, {})) <= {"objective", "segment_probability"}
    (folder / "origin.json").write_text("{}")
    assert choose_settings(folder, {})["learning_rate"] == "5e-5"
