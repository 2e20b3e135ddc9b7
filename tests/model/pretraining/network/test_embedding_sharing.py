"""The discriminator's own difference from the generator's words, the generator that stays as it
was, and samples that grow colder.
"""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode
from transformers import ElectraForPreTraining

from beam_jobs.job.errors import UserError
from model.config import PretrainingConfig
from model.device import open_device
from model.presets import PRESETS, apply_settings
from model.pretrain import run
from model.pretraining import optimizer as optimizers
from model.pretraining.assembly import build_batches, build_model, build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.network.encoder import initialize_weights
from model.pretraining.network.initial_weights import Origin
from tests.model.synthetic_shards import write_shards

SHAPE = {"layers": "1", "hidden": "32", "intermediate": "64", "embedding": "32", "batch": "8"}
OWN = {"embedding_sharing": "disentangled"}
WORD = "electra.embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"), sequences=100, length=64)


def build(shards, **settings):
    """Return a model with fresh weights and a batch for it."""
    preset = apply_settings(PRESETS["tiny"], SHAPE | {"dropout": "0"} | settings)
    opened = Shards.open(shards)
    model = build_model(preset, opened.vocabulary_size, torch.float32)
    initialize_weights(model, seed=0)
    batch = open_device("cpu", "fp32").put(
        next(build_batches(preset.pretraining, opened).iterate_steps(0))
    )
    return model, batch


def start(shards, output, *more, steps="6", **settings):
    sets = [w for n, v in (SHAPE | settings).items() for w in ("--set", f"{n}={v}")]
    words = ["--shards", str(shards), "--output", str(output), "--preset", "tiny", "--threads", "1"]
    return run([*words, "--steps", steps, *more, *sets])


def test_the_discriminators_loss_moves_the_difference_and_not_the_generators_words(shards):
    gradients = {}
    for name, settings in {"tied": {}, "own": OWN}.items():
        model, batch = build(shards, generator_weight="0", **settings)
        result = model(batch)
        result.loss.backward()
        gradients[name] = result.loss.item(), model.embeddings.word.grad, model.word_difference
    (loss, tied, nothing), (same_loss, rest, difference) = gradients["tied"], gradients["own"]
    assert same_loss == loss, "the difference begins at zero"
    assert nothing is None
    assert tied.abs().sum() > 0
    assert not rest.any()
    assert torch.allclose(difference.grad, tied, atol=1e-7)


def test_the_generators_loss_moves_its_words(shards):
    model, batch = build(shards, discriminator_weight="0", **OWN)
    model(batch).loss.backward()
    assert model.embeddings.word.grad.abs().sum() > 0
    assert not model.word_difference.grad.any()


def test_the_exported_discriminator_has_the_words_with_their_difference(shards, tmp_path):
    result = start(shards, tmp_path, learning_rate="1e-2", **OWN)
    found = load_file(tmp_path / "discriminator" / "model.safetensors")[WORD]
    generator = load_file(tmp_path / "generator" / "model.safetensors")[WORD]
    [last] = (tmp_path / "checkpoints").glob("step-*6/state.safetensors")
    state = load_file(last)
    [difference] = [t for n, t in state.items() if n.endswith("model.word_difference")]
    assert difference.abs().max() > 1e-3
    assert torch.allclose(found, generator + difference)
    _, info = ElectraForPreTraining.from_pretrained(result["encoder"], output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_a_fixed_generator_stays_as_it_was_loaded(shards, tmp_path):
    begun = start(shards, tmp_path / "mlm", objective="mlm")
    fixed = {**OWN, "objective": "electra", "fixed_generator": "true"}
    origin = ["--start-from", begun["encoder"], "--start-generator-from", begun["encoder"]]
    start(shards, tmp_path / "electra", *origin, learning_rate="1e-2", **fixed)
    before = load_file(tmp_path / "mlm" / "encoder" / "model.safetensors")
    generator = load_file(tmp_path / "electra" / "generator" / "model.safetensors")
    assert generator.keys() == before.keys()
    assert all(torch.equal(generator[name], tensor) for name, tensor in before.items())
    discriminator = load_file(tmp_path / "electra" / "discriminator" / "model.safetensors")
    layer = "electra.encoder.layer.0.output.dense.weight"
    assert not torch.allclose(discriminator[layer], before[layer], atol=1e-4)
    assert not torch.allclose(discriminator[WORD], before[WORD], atol=1e-4)


def test_nothing_goes_back_through_a_fixed_generator(shards, tmp_path):
    """And what is counted are the products that torch makes."""
    begun = start(shards, tmp_path / "mlm", objective="mlm")
    wanted = SHAPE | OWN | {"fixed_generator": "true", "generator_multiplier": "1"}
    preset = apply_settings(PRESETS["tiny"], wanted)
    origin = Origin(tmp_path / "mlm" / "encoder", tmp_path / "mlm" / "encoder")
    device, opened = open_device("cpu", "fp32"), Shards.open(shards)
    training = build_training(preset, opened, device, tmp_path / "run", origin=origin)
    optimizers.begin_step(training.optimizer, 0.5)
    arrays = next(training.batches.iterate_steps(0))
    with FlopCounterMode(display=False) as counter:
        training.model({n: torch.as_tensor(a) for n, a in arrays.items()}).loss.backward()
    assert training.count_matrix_flops(arrays) == pytest.approx(counter.get_total_flops(), rel=0.01)
    learnt = {n.split(".")[0] for n, p in training.model.named_parameters() if p.grad is not None}
    assert learnt == {"discriminator", "discriminator_head", "word_difference"}
    assert begun["matrix_flops"] > 0


def test_a_generator_that_never_learns_has_to_be_loaded(shards, tmp_path):
    """Where nothing is loaded, and where a narrow one begins anew beside a loaded discriminator."""
    fixed = {**OWN, "objective": "electra", "fixed_generator": "true"}
    begun = start(shards, tmp_path / "mlm", objective="mlm")
    narrow = ["--start-from", begun["encoder"], "--set", "generator_multiplier=0.5"]
    for origin in ([], narrow):
        with pytest.raises(UserError, match=r"fixed_generator: .* --start-from"):
            start(shards, tmp_path / "electra", *origin, **fixed)


def test_samples_grow_colder_step_by_step(shards):
    model, batch = build(shards, first_temperature="3", temperature="0.5")
    told, replaced = [], []
    for progress in (0.0, 0.5, 1.0):
        model.begin_step(progress)
        told.append(float(model.temperature))
        replaced.append(model(batch).sums["replaced"].item())
    assert told == pytest.approx([3, 1.75, 0.5])
    constant, _ = build(shards, temperature="0.5")
    assert constant.temperature == 0.5
    assert constant(batch).sums["replaced"].item() == replaced[2]
    assert "falling_temperature" not in model.state_dict()


def test_what_was_always_so_has_the_identity_it_had():
    """Runs that were made before these settings are found complete and are continued."""
    told = PretrainingConfig(steps=1, batch=1, learning_rate=1e-3).describe()
    assert not {"first_temperature", "embedding_sharing", "fixed_generator"} & told.keys()
    other = PretrainingConfig(
        steps=1, batch=1, learning_rate=1e-3, embedding_sharing="disentangled"
    )
    assert json.loads(json.dumps(other.describe()))["embedding_sharing"] == "disentangled"
