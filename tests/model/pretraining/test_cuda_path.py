"""What runs on a GPU, as far as it can run without one: compiled layers and heads without breaks,
and the blocks of the fused attention. With a GPU also the numbers.
"""

from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from amazon_electra.model.device import Device
from amazon_electra.model.pretraining import loop
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.encoder import (
    FusedAttention,
    build_attention,
    find_blocks,
)
from tests.model.pretraining.runs import build, take_steps
from tests.model.synthetic_shards import write_shards

SETTINGS = {"layers": 2, "hidden": 64, "intermediate": 128, "embedding": 32, "heads": 1, "batch": 4}
no_dropout = torch.nn.Dropout(0.0)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return Shards.open(write_shards(tmp_path_factory.mktemp("shards"), sequences=100, length=64))


def training(shards, kind, folder, **settings):
    return build(shards, folder, kind, **SETTINGS | settings)


def assert_same_state(one, other):
    """Weights and moments are the same to the bit."""
    first, second = one.copy_state().tensors, other.copy_state().tensors
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["electra", "mlm"])
def test_compiled_steps_are_the_plain_ones(shards, tmp_path, monkeypatch, objective):
    """fullgraph: a break would raise."""
    whole = partial(torch.compile, backend="aot_eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", lambda function, **_: whole(function))
    torch.compiler.reset()
    states = []
    for compiles in ("off", "on"):
        settings = {"dropout": "0", "steps": "5", "weight_decay": "0.1", "layers": "1"}
        settings |= {"compile": compiles, "objective": objective}
        run = training(shards, "cpu", tmp_path / compiles, **settings)
        assert run.compiled == (compiles == "on")
        take_steps(run, islice(run.batches.iterate_steps(0), 4))
        states.append(run.copy_state().tensors)
    first, second = states
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-3, atol=1e-5, msg=name)


def test_a_step_that_cannot_be_compiled_is_taken(shards, tmp_path, monkeypatch, capsys):
    def refuse(graph, inputs):
        raise RuntimeError("no compiler here\nand much more")

    plain = training(shards, "cpu", tmp_path, dropout="0")
    arrays = next(plain.batches.iterate_steps(0))
    loop.run_step(plain, arrays)
    refused = partial(torch.compile, backend=refuse)
    monkeypatch.setattr(Device, "compiles", True)
    monkeypatch.setattr(torch, "compile", lambda function, **_: refused(function))
    run = training(shards, "cpu", tmp_path, dropout="0")
    assert run.compiled
    loop.run_step(run, arrays)
    assert not run.compiled
    [line] = capsys.readouterr().err.splitlines()
    assert "warning: torch.compile failed (" in line
    assert "no compiler here" in line
    assert_same_state(plain, run)
    asked = training(shards, "cpu", tmp_path, dropout="0", compile="on")
    with pytest.raises(RuntimeError, check=lambda error: "no compiler here" in str(error)):
        loop.run_step(asked, arrays)


def number_rows(length):
    """Documents of 10, 70, 2, 100 … tokens in rows that end with padding, but for the first."""
    sizes = [[10, 70, 2, 100, 130, 20], [length - 5], [100, 100, 30], [1] * 20]
    rows = np.zeros((len(sizes), length), dtype=np.int64)
    for row, widths in zip(rows, sizes, strict=True):
        numbers = np.repeat(np.arange(1, len(widths) + 1), widths)[:length]
        row[: len(numbers)] = numbers
    return torch.as_tensor(rows)


@pytest.mark.parametrize("length", [64, 128, 300])
def test_blocks_hold_all_that_share_a_document(length):
    documents = number_rows(length)
    counts, places = find_blocks(documents)
    together = documents[:, :, None] == documents[:, None]
    blocks = -(-length // 128)
    assert places.shape == (len(documents), 1, blocks, blocks)
    for row in range(len(documents)):
        for block in range(blocks):
            seen = set(places[row, 0, block, : counts[row, 0, block]].tolist())
            tokens = slice(block * 128, (block + 1) * 128)
            needed = together[row, tokens].any(0).nonzero().flatten() // 128
            assert seen == set(needed.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("length", [64, 300])
def test_the_fused_attention_is_the_dense_one(length):
    """Compiled by Inductor and gcc, which read the blocks as a GPU's kernel does."""
    documents = number_rows(length)
    qkv = torch.randn(len(documents), length, 3, 2, 16)
    fused = FusedAttention(documents, *find_blocks(documents))
    dense = build_attention({"documents": documents})(qkv, no_dropout)
    assert torch.equal(fused(qkv, no_dropout), dense)  # uncompiled
    with torch.no_grad():
        compiled = torch.compile(fused.__call__)(qkv, no_dropout)
    torch.testing.assert_close(compiled, dense, atol=1e-5, rtol=1e-5)


without_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@without_gpu
def test_graphs_are_the_plain_steps_and_go_on(shards, tmp_path):
    losses, states = {}, []
    for compiles in ("off", "auto"):
        settings = {"precision": "bf16", "dropout": "0", "compile": compiles}
        run = training(shards, "cuda", tmp_path / compiles, **settings)
        batches = list(islice(run.batches.iterate_steps(0), 6))
        losses[compiles] = take_steps(run, batches)
    assert losses["auto"] == pytest.approx(losses["off"], rel=0.01)
    for first in (0, 3):
        run = training(shards, "cuda", tmp_path / str(first), precision="bf16")
        take_steps(run, batches[:first])
        again = training(shards, "cuda", tmp_path / f"{first} again", precision="bf16")
        again.restore_state(run.copy_state())
        take_steps(again, batches[first:])
        assert again.graphs
        states.append(again.copy_state().tensors)
    first, second = states
    assert all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


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


def test_without_memory_half_the_sequences_are_taken(shards, tmp_path, capsys):
    few, halved = (
        training(shards, "cpu", tmp_path / name, dropout="0", **size)
        for name, size in (("few", {"device_batch": "1"}), ("halved", {}))
    )
    arrays = next(few.batches.iterate_steps(0))
    loop.run_step(few, arrays)
    tried = forbid_more_than(halved, 1)
    loop.run_step(halved, arrays)
    assert tried == [4, 2, 1, 1, 1, 1]
    assert halved.config.device_batch == 1
    assert "device_batch is 1 from here" in capsys.readouterr().err
    assert_same_state(few, halved)
