"""The warning where another objective would pay."""

import json

import pytest

from model.presets import PRESETS, apply_settings
from model.pretrain import run
from model.pretraining.budget import describe_small_budget
from tests.model.synthetic_shards import write_shards

SETTINGS = ["layers=1", "hidden=32", "intermediate=64", "embedding=32", "batch=8"]


@pytest.mark.parametrize(
    ("settings", "is_warned"),
    [
        ({}, True),
        ({"objective": "mlm"}, False),
        ({"steps": "32000"}, False),
        ({"steps": "31000"}, True),
        ({"steps": "16000", "batch": "32"}, False),
    ],
)
def test_a_small_budget_names_the_objective_that_would_pay(settings, is_warned):
    preset = apply_settings(PRESETS["tiny"], settings)
    warning = describe_small_budget(preset, 128)
    assert (warning is not None) == is_warned
    if warning:
        assert "objective=mlm" in warning
        assert "docs/results.md" in warning


@pytest.mark.parametrize("objective", ["electra", "mlm"])
def test_the_run_says_so(tmp_path, capsys, objective):
    shards = write_shards(tmp_path / "shards")
    sets = [part for s in [*SETTINGS, f"objective={objective}"] for part in ("--set", s)]
    fixed = ["--shards", str(shards), "--output", str(tmp_path / "out"), "--preset", "tiny"]
    result = run([*fixed, "--device", "cpu", "--threads", "1", "--steps", "2", *sets])
    words, is_small = "preset tiny with 0.000512 M tokens", objective == "electra"
    assert (words in capsys.readouterr().err) == is_small
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == result
    assert [warning.startswith(words) for warning in result["warnings"]] == [True] * is_small
