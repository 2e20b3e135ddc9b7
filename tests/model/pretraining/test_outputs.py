"""The card, MLflow, the recipes' sources."""

import json
import shutil
from pathlib import Path

import pytest

from model.encoders.vocabulary import find_special
from model.pretrain import run
from model.recipes import RECIPES, apply_settings
from tests.model.synthetic_shards import write_shards

SETTINGS = ["layers=1", "hidden=32", "intermediate=64", "embedding=32", "batch=8", "log_every=2"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=60)


def arguments(shards, output, *more):
    sets = [part for setting in SETTINGS for part in ("--set", setting)]
    fixed = ["--recipe", "sample", "--device", "cpu", "--threads", "1", "--steps", "10"]
    return ["--shards", str(shards), "--output", str(output), *fixed, *sets, *more]


def test_the_card_tells_data_counts_curve_and_lineage(shards, tmp_path):
    dev = write_shards(tmp_path / "dev", sequences=60, split="dev")
    result = run(arguments(shards, tmp_path / "out", "--validation", str(dev)))
    for role in ("discriminator", "generator"):
        card = (Path(result[role]) / "README.md").read_text()
        assert card.startswith("---\nlibrary_name: transformers\n")
        for told in (
            "60 packed sequences",
            "10 steps",
            "80 sequences",
            "| 10 | ",
            "discriminator auc",
            "- shards: `",
        ):
            assert told in card, told


def test_padding_is_the_token_that_the_tokenizer_has_for_it(shards, tmp_path):
    own = shutil.copytree(shards, tmp_path / "shards")
    told = own / "vocabulary" / "tokenizer_config.json"
    told.write_text(told.read_text().replace('"[PAD]"', '"word0"'))
    result = run(arguments(own, tmp_path / "out"))
    for role in ("discriminator", "generator"):
        config = json.loads((Path(result[role]) / "config.json").read_text())
        assert config["pad_token_id"] == 5
    told.write_text(told.read_text().replace('"word0"', '"<pad>"'))
    assert find_special(told.parent, "pad") is None


def test_a_run_by_hand_mirrors_itself_into_mlflow(shards, tmp_path, mlflow_uri, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    monkeypatch.chdir(tmp_path)  # where MLflow would put what it has no place for
    run(arguments(shards, tmp_path / "out"))
    client = mlflow.tracking.MlflowClient(mlflow_uri)
    runs = [
        run for e in client.search_experiments() for run in client.search_runs([e.experiment_id])
    ]
    histories = [client.get_metric_history(run.info.run_id, "generator_loss") for run in runs]
    assert [
        point.step for history in histories for point in sorted(history, key=lambda p: p.step)
    ] == [2, 4, 6, 8, 10]


PUBLISHED = {  # Clark et al. 2020, table 6; google-research/electra README
    "small": (12, 256, 1024, 4, 128, 128, 128, 5e-4, 1_000_000, 0.15),
    "base": (12, 768, 3072, 12, 768, 256, 512, 2e-4, 766_000, 0.15),
    "large": (24, 1024, 4096, 16, 1024, 2048, 512, 2e-4, 400_000, 0.25),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_hold_the_published_numbers(name):
    recipe = RECIPES[name]
    a, p = recipe.architecture, recipe.pretraining
    numbers = (a.layers, a.hidden, a.intermediate, a.heads, a.embedding, p.batch, recipe.max_length)
    assert (*numbers, p.learning_rate, p.steps, p.mask_probability) == PUBLISHED[name]
    assert round(p.warmup * p.steps) == 10_000
    assert a.derive_generator().hidden == {"small": 64, "base": 256, "large": 256}[name]
    assert a.derive_generator().heads == a.derive_generator().hidden // 64
    assert (p.discriminator_weight, p.weight_decay, p.adam_epsilon, p.clip, p.dropout) == (
        50.0,
        0.01,
        1e-6,
        1.0,
        0.1,
    )


def test_googles_third_is_rounded_to_whole_heads():
    """configure_pretraining.py writes 0.33333 for base, of which 768 is 255.997."""
    base = apply_settings(RECIPES["base"], {"generator_multiplier": "0.33333"})
    assert base.architecture.derive_generator().hidden == 256
