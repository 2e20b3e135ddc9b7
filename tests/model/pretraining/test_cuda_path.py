"""What runs on a GPU, as far as it can run without one: one graph without breaks, the fused
attention's shapes, and the offsets it is given. With a GPU also the numbers.
"""

from dataclasses import replace
from functools import partial
from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from beam_jobs.core.errors import UserError
from model.config import AdaptationConfig
from model.device import Device, open_device
from model.pretraining import loop
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.network.dropout import Dropout, Noise
from model.pretraining.network.encoder import (
    BOUNDARIES,
    DenseAttention,
    DocumentAttention,
    build_attention,
    find_boundaries,
    put_batch,
)
from model.recipes import RECIPES, apply_settings
from tests.model.synthetic_shards import write_shards

SETTINGS = {
    "layers": "2",
    "hidden": "64",
    "intermediate": "128",
    "embedding": "32",
    "heads": "1",
    "batch": "4",
}
no_dropout = Dropout(Noise(0.0))


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return Shards.open(write_shards(tmp_path_factory.mktemp("shards"), sequences=100, length=64))


def training(shards, kind, folder, **settings):
    recipe = apply_settings(RECIPES["sample"], SETTINGS | {"precision": "fp32"} | settings)
    return build_training(recipe, shards, open_device(kind, recipe.pretraining.precision), folder)


def attend_by_document(query, key, value, starts, starts_key, longest, longest_key):
    """Stand in for the fused kernel, with its arguments, where there is none."""
    places = torch.arange(len(query))
    documents = torch.searchsorted(starts[1:].long(), places, right=True)
    mask = documents[:, None] == documents[None, :]
    query, key, value = (part.transpose(0, 1) for part in (query, key, value))
    mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return mixed.transpose(0, 1)


def test_the_fused_kernel_is_given_what_makes_the_dense_attention(shards, tmp_path, monkeypatch):
    """The branch that CUDA takes gives the same loss; a stand-in has the kernel's signature."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    run = training(shards, "cpu", tmp_path, dropout="0")
    arrays = next(run.batches.iterate_steps(0))
    dense = run.model(run.mask(put_batch(run.device, arrays))).loss
    monkeypatch.setattr(varlen, "varlen_attn", attend_by_document)
    monkeypatch.setattr(Device, "has_document_attention", True)
    batch = run.mask(put_batch(run.device, arrays))
    assert BOUNDARIES in batch
    torch.testing.assert_close(run.model(batch).loss, dense, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("kind", [DenseAttention, DocumentAttention])
def test_attention_has_a_hash_before_it_has_its_tensors(kind):
    """torch.compile of torch 2.11 asks for one of an object that it has not filled yet."""
    assert isinstance(hash(object.__new__(kind)), int)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["electra", "mlm"])
def test_compiled_steps_are_those_that_are_not_and_break_nowhere(
    shards, tmp_path, monkeypatch, objective
):
    """The branch that CUDA takes; a stand-in has the fused kernel's signature. fullgraph: a break
    would raise. The trunk begins to learn in the third step.
    """
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    monkeypatch.setattr(varlen, "varlen_attn", attend_by_document)
    monkeypatch.setattr(Device, "has_document_attention", True)
    whole = partial(torch.compile, backend="aot_eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", lambda function, mode="": whole(function))
    torch.compiler.reset()
    states = []
    for compiles in ("off", "on"):
        settings = {"dropout": "0", "steps": "5", "weight_decay": "0.1", "layers": "1"}
        settings |= {"compile": compiles, "objective": objective}
        run = training(shards, "cpu", tmp_path / compiles, **settings)
        run = replace(run, adaptation=AdaptationConfig(head_steps=0.4))
        assert run.compiled == (compiles == "on")
        for arrays in islice(run.batches.iterate_steps(0), 4):
            loop.run_step(run, arrays)
            run.totals.step += 1
        states.append(loop.copy_state(run).tensors)
    first, second = states
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.slow
def test_compiled_steps_of_one_shape_are_compiled_once_and_drop_out_alike_again(shards, tmp_path):
    """By Inductor and gcc. A run that is restored goes on as if it had never stopped."""
    torch.compiler.reset()
    settings = {"dropout": "0.1", "layers": "1", "compile": "on", "objective": "mlm"}
    whole = training(shards, "cpu", tmp_path, **settings)
    batches = list(islice(whole.batches.iterate_steps(0), 4))
    for arrays in batches[:2]:
        loop.run_step(whole, arrays)
        whole.totals.step += 1
    again = training(shards, "cpu", tmp_path, **settings)
    loop.restore_state(again, loop.copy_state(whole))
    for one in (whole, again):
        stance = "fail_on_recompile" if one is whole else "default"
        for arrays in batches[2:]:
            with torch.compiler.set_stance(stance):
                loop.run_step(one, arrays)
            one.totals.step += 1
    first, second = loop.copy_state(whole).tensors, loop.copy_state(again).tensors
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def test_a_step_that_cannot_be_compiled_is_taken_without_and_told(
    shards, tmp_path, monkeypatch, capsys
):
    def refuse(graph, inputs):
        raise RuntimeError("no compiler here\nand much more")

    plain = training(shards, "cpu", tmp_path, dropout="0")
    arrays = next(plain.batches.iterate_steps(0))
    loop.run_step(plain, arrays)
    compile_anyhow = torch.compile
    monkeypatch.setattr(Device, "compiles", True)
    monkeypatch.setattr(
        torch, "compile", lambda function, mode="": compile_anyhow(function, backend=refuse)
    )
    run = training(shards, "cpu", tmp_path, dropout="0")
    assert run.compiled
    loop.run_step(run, arrays)
    assert not run.compiled
    [told] = capsys.readouterr().err.splitlines()
    assert "warning: torch.compile failed (" in told
    assert "no compiler here" in told
    first, second = loop.copy_state(plain).tensors, loop.copy_state(run).tensors
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())
    asked = training(shards, "cpu", tmp_path, dropout="0", compile="on")
    with pytest.raises(Exception, match="no compiler here"):
        loop.run_step(asked, arrays)


def test_boundaries_say_where_each_document_is(shards, tmp_path):
    """Attention document by document, from the offsets, equals the dense one with its mask."""
    documents = next(training(shards, "cpu", tmp_path).batches.iterate_steps(0))["documents"]
    offsets = find_boundaries(documents)
    assert offsets[0] == 0
    assert offsets[-1] == documents.size
    assert (np.diff(offsets) >= 0).all()
    qkv = torch.randn(*documents.shape, 3, 2, 8)
    dense = build_attention({"documents": torch.as_tensor(documents)})(qkv, no_dropout)
    flat = qkv.flatten(0, 1)
    parts = []
    for start, end in pairwise(offsets):
        query, key, value = (flat[start:end, i].transpose(0, 1) for i in range(3))
        parts.append(
            functional.scaled_dot_product_attention(query, key, value).transpose(0, 1).flatten(1)
        )
    torch.testing.assert_close(dense, torch.cat(parts).view_as(dense), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("each", "slots"), [(64, 4), (22, 16), (16, 16), (2, 128), (1, 256)])
def test_the_slots_follow_the_documents_of_the_batch(each, slots):
    documents = np.tile(1 + np.arange(64) // each, (4, 1))
    offsets = find_boundaries(documents)
    assert len(offsets) == slots + 1
    assert len(set(offsets.tolist())) == 4 * -(-64 // each) + 1


def test_the_fused_attention_takes_our_shapes():
    pytest.importorskip("torch.nn.attention.varlen")
    with FakeTensorMode(), torch.no_grad():
        qkv = torch.empty(4, 128, 3, 12, 64, dtype=torch.bfloat16, device="cuda")
        offsets = torch.empty(65, dtype=torch.int32, device="cuda")
        mixed = DocumentAttention(offsets, 128)(qkv, no_dropout)
    assert mixed.shape == (4, 128, 768)
    assert mixed.dtype == torch.bfloat16


without_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=without_gpu)])
def test_what_was_restored_goes_on_as_if_never_stopped(shards, tmp_path, kind):
    """The fused optimizer counts its steps on the device of the parameters."""
    whole = training(shards, kind, tmp_path)
    batches = list(islice(whole.batches.iterate_steps(0), 4))
    for arrays in batches[:2]:
        loop.run_step(whole, arrays)
        whole.totals.step += 1
    again = training(shards, kind, tmp_path)
    loop.restore_state(again, loop.copy_state(whole))
    assert all(
        tensor.device == parameter.device
        for parameter, moments in again.optimizer.state.items()
        for tensor in moments.values()
    )
    for arrays in batches[2:]:
        for one in (whole, again):
            loop.run_step(one, arrays)
            one.totals.step += 1
    first, second = loop.copy_state(whole).tensors, loop.copy_state(again).tensors
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


@without_gpu
def test_twenty_steps_on_a_gpu_are_those_of_the_cpu(shards, tmp_path):
    losses = {}
    for kind in ("cpu", "cuda"):
        run = training(shards, kind, tmp_path / kind, dropout="0")
        batches = run.batches.iterate_steps(0)
        losses[kind] = []
        for _ in range(20):
            sums, _ = loop.run_step(run, next(batches))
            losses[kind].append(
                run.model.compute_means({name: float(value) for name, value in sums.items()})[
                    "loss"
                ]
            )
            run.totals.step += 1
    assert losses["cuda"] == pytest.approx(losses["cpu"], abs=1e-3)


@without_gpu
def test_the_fused_attention_equals_the_dense_one_on_a_gpu(shards, tmp_path):
    run = training(shards, "cuda", tmp_path, precision="bf16", dropout="0")
    batch = run.mask(put_batch(run.device, next(run.batches.iterate_steps(0))))
    fused = run.model(batch).loss
    dense = run.model({name: tensor for name, tensor in batch.items() if name != "boundaries"}).loss
    assert fused.item() == pytest.approx(dense.item(), rel=0.01)


def forbid_more_than(run, sequences):
    """Let the model's forward fail as a device does whose memory holds no more sequences."""
    forward, tried = run.forward, []

    def forward_few(batch):
        tried.append(len(batch["input_ids"]))
        result = forward(batch)
        if tried[-1] > sequences:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return result

    run.forward = forward_few
    return tried


def test_a_device_without_the_memory_takes_half_the_sequences_and_the_same_step(
    shards, tmp_path, capsys
):
    few, halved = (
        training(shards, "cpu", tmp_path / name, dropout="0", device_batch=size)
        for name, size in (("few", "1"), ("halved", "0"))
    )
    arrays = next(few.batches.iterate_steps(0))
    loop.run_step(few, arrays)
    tried = forbid_more_than(halved, 1)
    loop.run_step(halved, arrays)
    assert tried == [4, 2, 1, 1, 1, 1]
    assert halved.config.device_batch == 1
    assert "device_batch is 1 from here" in capsys.readouterr().err
    first, second = loop.copy_state(few).tensors, loop.copy_state(halved).tensors
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def test_one_sequence_that_does_not_fit_is_said_in_a_line(shards, tmp_path):
    run = training(shards, "cpu", tmp_path)
    forbid_more_than(run, 0)
    with pytest.raises(UserError, match="one sequence does not fit"):
        loop.run_step(run, next(run.batches.iterate_steps(0)))
