"""The warning while the discriminator is a constant."""

from pathlib import Path

import pytest

from amazon_electra.model.pretraining.validation import describe_collapse
from tests.model.pretraining.runs import SHAPE, pretrain


def test_a_constant_is_warned_of(shards, dev_shards, tmp_path, capsys):
    words = ("--validation", dev_shards)
    result = pretrain(shards, tmp_path / "out", *words, steps=4, learning_rate=1e-6, **SHAPE)
    warning = "step 4: the discriminator is a constant so far (AUC 0."
    assert warning in capsys.readouterr().err
    [kept] = result["warnings"]
    assert kept.startswith(warning)
    assert "discriminator auc |" in Path(result["encoder"], "README.md").read_text()


@pytest.mark.parametrize(
    "measures",
    [
        {"validation_discriminator_auc": 0.8},
        {"validation_mlm_loss": 3.0},
        {"validation_discriminator_auc": float("nan")},
    ],
)
def test_a_useful_discriminator_is_not_warned_of(measures):
    assert describe_collapse(4, measures) is None
