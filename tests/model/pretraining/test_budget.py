"""The warning where pre-training from random weights is too short to pay."""

import pytest

from amazon_electra.model.pretraining.budget import describe_small_budget
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.model.pretraining.runs import SHAPE, pretrain


@pytest.mark.parametrize(
    ("settings", "is_warned"),
    [
        ({}, True),
        ({"objective": "mlm"}, True),
        ({"steps": "64000"}, False),
        ({"steps": "62000"}, True),
        ({"steps": "16000", "batch": "32"}, False),
    ],
)
def test_a_small_budget_names_what_pays(settings, is_warned):
    recipe = apply_settings(RECIPES["sample"], settings)
    warning = describe_small_budget(recipe, 128)
    assert (warning is not None) == is_warned
    if warning:
        assert "start_from" in warning
        assert len(warning) < 160, "one line of a terminal"


def test_the_run_says_so_unless_it_begins_with_loaded_weights(shards, tmp_path, capsys):
    result = pretrain(shards, tmp_path / "out", steps=2, **SHAPE)
    assert capsys.readouterr().err.count("0.000512 M tokens") == 1
    assert result["warnings"] == [], "what is known before it begins is not said again"
    begun = ["--start-from", result["discriminator"]]
    assert pretrain(shards, tmp_path / "more", *begun, steps=2, **SHAPE)["warnings"] == []
    assert "M tokens" not in capsys.readouterr().err
