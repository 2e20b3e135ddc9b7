"""The last steps of pre-training on longer sequences: trained, counted, continued, refused."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from beam_jobs.job.errors import UserError
from model.presets import PRESETS, apply_settings
from model.pretrain import run
from model.pretraining.input.sequences import Shards
from model.pretraining.loop import EXIT_TERMINATED
from model.pretraining.network.flops import count_published_flops
from model.tracking.metrics_log import read_metrics
from tests.model.pretraining.termination import terminated_at
from tests.model.synthetic_shards import write_shards

SETTINGS = {"layers": "1", "hidden": "32", "intermediate": "64", "embedding": "32", "batch": "8"}
SETTINGS |= {"dropout": "0.1", "log_every": "1", "checkpoint_every": "5"}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("short"), sequences=100, length=32)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("long"), sequences=50, length=80, words=40)


def train(short, output, *more, steps=20):
    share = {"long_share": "0.25"} if "--long-shards" in more else {}
    sets = [f"--set={name}={value}" for name, value in (SETTINGS | share).items()]
    fixed = ["--preset", "tiny", "--device", "cpu", "--threads", "1"]
    length = ["--steps", str(steps)] if steps else []
    return run(["--shards", str(short), "--output", str(output), *fixed, *length, *sets, *more])


def read_positions(output):
    weights = load_file(output / "discriminator" / "model.safetensors")
    return weights["electra.embeddings.position_embeddings.weight"]


def test_the_last_quarter_of_the_steps_takes_longer_sequences(short, long, tmp_path):
    result = train(short, tmp_path, "--long-shards", str(long))
    assert result["trained_length"] == 80
    config = json.loads((tmp_path / "discriminator" / "config.json").read_text())
    assert config["trained_length"] == 80
    assert "last 5 steps" in (tmp_path / "discriminator" / "README.md").read_text()

    per_step = np.diff([0, *(line["tokens"] for line in read_metrics(tmp_path))])
    assert len(per_step) == 20
    assert per_step[:15].max() <= 8 * 32 < per_step[15:].min() <= 8 * 80
    assert result["tokens"] == per_step.sum()
    per_step = np.diff([0, *(line["matrix_flops"] for line in read_metrics(tmp_path))])
    assert per_step[15:].min() > 2 * per_step[:15].max()

    shape = apply_settings(PRESETS["tiny"], {k: SETTINGS[k] for k in list(SETTINGS)[:4]})
    published = sum(
        count_published_flops(shape.architecture, 100, length, 8 * steps)
        for length, steps in ((32, 15), (80, 5))
    )
    assert result["flops"] == pytest.approx(published)


def test_longer_sequences_train_the_positions_up_to_their_length(short, long, tmp_path):
    train(short, tmp_path / "both", "--long-shards", str(long), steps=4)
    train(short, tmp_path / "short", steps=4)
    both, alone = read_positions(tmp_path / "both"), read_positions(tmp_path / "short")
    moved = np.abs(both - alone).max(axis=1)
    assert (moved[32:64] > 1e-5).all()
    assert not moved[80:].any()


@pytest.mark.parametrize("step", [7, 15, 17])
def test_stopped_before_at_and_after_the_change_it_ends_in_the_same_bytes(
    short, long, tmp_path, step
):
    train(short, tmp_path / "whole", "--long-shards", str(long))
    output = tmp_path / "stopped"
    with terminated_at(step), pytest.raises(SystemExit) as ended:
        train(short, output, "--long-shards", str(long))
    assert ended.value.code == EXIT_TERMINATED
    resumed = train(short, output, "--long-shards", str(long))
    whole = json.loads((tmp_path / "whole" / "result.json").read_text())
    for name in ("tokens", "flops", "matrix_flops"):
        assert resumed[name] == pytest.approx(whole[name], rel=1e-12)
    for role in ("discriminator", "generator"):
        file = f"{role}/model.safetensors"
        assert (output / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_a_budget_of_operations_pays_for_both_lengths(short, long, tmp_path):
    spent = train(short, tmp_path / "steps", "--long-shards", str(long))["matrix_flops"]
    again = train(
        short, tmp_path / "budget", "--long-shards", str(long), "--budget", f"{spent}flops", steps=0
    )
    assert again["steps"] == pytest.approx(20, abs=1)


def test_what_does_not_fit_is_refused_before_anything_is_trained(short, long, tmp_path):
    other = write_shards(tmp_path / "other", sequences=20, size=90, length=80)
    for more, words in (
        (["--long-shards", str(other)], "made with another vocabulary"),
        (["--long-shards", str(short)], "length 32, must be more than the 32"),
        (["--long-shards", str(long), "--replay", str(short)], "leave out --replay"),
        (["--long-shards", str(long), "--set", "max_positions=64"], "max_positions"),
        (["--set", "long_share=0.2"], "long_share: has no effect without --long-shards"),
    ):
        with pytest.raises(UserError, match=words):
            train(short, tmp_path / "refused", *more)
    with pytest.raises(UserError, match="a time does not say"):
        train(short, tmp_path / "refused", "--long-shards", str(long), "--budget", "30min", steps=0)
    of_another = tmp_path / "another"
    write_shards(of_another, sequences=20, length=80)
    told = json.loads((of_another / "shards.json").read_text()) | {"made_of": {"corpus": "another"}}
    (of_another / "shards.json").write_text(json.dumps(told))
    with pytest.raises(UserError, match="made of another corpus"):
        train(short, tmp_path / "refused", "--long-shards", str(of_another))
    assert Shards.open(of_another).max_length == 80
