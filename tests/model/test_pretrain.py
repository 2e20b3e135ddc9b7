"""The entry point: what it leaves behind, how it resumes, what it refuses."""

import json

import pytest
import torch

from amazon_electra.model import runtime
from amazon_electra.model.pretraining.loop import run_step
from amazon_electra.model.tracking.metrics_log import read_metrics
from tests.model.pretraining.runs import SHAPE, build, pretrain
from tests.model.pretraining.termination import terminated_at
from tests.model.synthetic_shards import write_shards
from tests.refusals import refuses

SMALL = SHAPE | {"dropout": 0.1, "log_every": 2, "checkpoint_every": 6}


def train(shards, output, *words, steps=20, **settings):
    return pretrain(shards, output, *words, steps=steps, **SMALL | settings)


def digest(output):
    roles = ("discriminator", "generator")
    return [(output / role / "model.safetensors").read_bytes() for role in roles]


def test_what_a_run_leaves(shards, tmp_path):
    result = train(shards, tmp_path)
    assert result["steps"] == 20
    assert result["sequences"] == 160
    assert 0 < result["tokens"] <= 160 * 32
    assert json.loads((tmp_path / "result.json").read_text()) == result
    resolved = json.loads((tmp_path / "config.json").read_text())
    assert resolved["pretraining"]["steps"] == 20
    assert resolved["architecture"]["hidden"] == 32
    assert (resolved["shards"], resolved["start_from"]) == (str(shards), "")
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines if "loss" in line] == list(range(2, 21, 2))
    wanted = {"generator_loss", "discriminator_loss", "generator_accuracy", "learning_rate"}
    wanted |= {"gradient_norm", "tokens_per_second", "sequences_per_second"}
    wanted |= {"tokens", "peak_memory_mb"}
    assert all(wanted <= set(line) for line in lines if "loss" in line)
    kept = [path.name for path in runtime.list_checkpoints(tmp_path / "checkpoints")]
    assert kept == ["step-00000018", "step-00000020"]


def test_terminated_it_continues_to_the_same_weights(shards, tmp_path):
    train(shards, tmp_path / "whole", steps=30)
    with terminated_at(8), pytest.raises(SystemExit) as stopped:
        train(shards, tmp_path / "cut", steps=30)
    assert stopped.value.code == runtime.EXIT_TERMINATED
    newest = runtime.list_checkpoints(tmp_path / "cut" / "checkpoints")[-1]
    assert newest.name in ("step-00000008", "step-00000009")
    train(shards, tmp_path / "cut", steps=30)
    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")
    steps = [line["step"] for line in read_metrics(tmp_path / "cut")]
    assert len(steps) == len(set(steps))


def test_stopped_within_a_step_nothing_is_kept(shards, tmp_path):
    training = build(shards, tmp_path, device_batch=4, **SMALL)
    arrays = next(training.batches.iterate_steps(0))
    before = [parameter.clone() for parameter in training.model.parameters()]
    training.stopping = True
    assert run_step(training, arrays) is None
    assert all(torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in training.model.parameters())
    training.stopping = False
    assert run_step(training, arrays) is not None


def test_continuing_another_run_is_refused(shards, tmp_path):
    """Other settings, other shards, other code."""
    train(shards, tmp_path, steps=5)
    for change in ({"dropout": 0.3}, {"learning_rate": 1}, {"seed": 2}, {"hidden": 64}):
        with refuses(next(iter(change))):
            train(shards, tmp_path, steps=5, **change)
    other = write_shards(tmp_path / "other", sequences=100, seed=5)
    words = write_shards(tmp_path / "words", sequences=100, size=400)
    for made, name in ((other, "shards"), (words, "vocabulary")):
        with refuses(name):
            train(made, tmp_path, steps=5)
    state = runtime.list_checkpoints(tmp_path / "checkpoints")[-1] / runtime.NUMBERS
    numbers = json.loads(state.read_text())
    numbers["identity"]["computation"] = 0
    state.write_text(json.dumps(numbers))
    with refuses("computation"):
        train(shards, tmp_path, steps=5)


def test_a_diverged_loss_keeps_the_last_good_checkpoint(shards, tmp_path):
    with refuses("learning_rate"):
        train(shards, tmp_path, learning_rate="1e30", clip="1e30")
    for path in runtime.list_checkpoints(tmp_path / "checkpoints"):
        for tensor in runtime.load_state(path).tensors.values():
            assert tensor.isfinite().all()


@pytest.mark.parametrize(("option", "split"), [("--shards", "test"), ("--validation", "pretrain")])
def test_shards_of_the_wrong_split_are_refused(shards, tmp_path, option, split):
    other = write_shards(tmp_path / "other", sequences=20, split=split)
    with refuses(field=option, value=other):
        train(shards, tmp_path / "out", option, other)


@pytest.mark.parametrize(
    ("settings", "option", "value"),
    [
        ("dropout=much", "--dropout", "much"),
        ("warmup=1.5", "--warmup", "1.5"),
        ("heads=5", "--hidden", "32"),
        ("hidden=0", "--hidden", "0"),
        ("objective=mlm+nsp type-vocabulary-size=1", "--type-vocabulary-size", "1"),
        ("generator-multiplier=0.001", "--generator-multiplier", "0.001"),
        ("hidden=200 heads=4 generator-multiplier=0.985", "--generator-multiplier", "0.985"),
        ("generator-layers=3", "--generator-layers", "3"),
        ("dropout=1", "--dropout", "1"),
        ("learning-rate=inf", "--learning-rate", "inf"),
        ("seed=-1", "--seed", "-1"),
        ("mask-probability=1e-9", "--mask-probability", "1e-09"),
        ("objective=gpt", "--objective", "gpt"),
        ("max-positions=8", "--max-positions", "8"),
        ("origin-average=0.1", "--origin-average", "None"),
    ],
)
def test_the_users_mistakes_are_named(shards, tmp_path, settings, option, value):
    with refuses(field=option, value=value):
        train(shards, tmp_path, *(f"--{one}" for one in settings.split()))


@pytest.mark.parametrize("output", ["file", "file/below", "/proc/here"])
def test_an_output_that_cannot_be_written_is_named(shards, tmp_path, output):
    (tmp_path / "file").write_text("in the way")
    with refuses("--output "):
        train(shards, tmp_path / output)
