"""States of a frozen encoder, which a cache keeps."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from transformers import BertConfig, BertModel

from amazon_electra.model.arms import cache
from amazon_electra.model.arms import states as frozen
from amazon_electra.model.device import open_device
from amazon_electra.model.finetuning.features import Feature

LONGEST = 40


def write_texts(count):
    """Texts of 1 to 40 tokens."""
    draw = np.random.default_rng(0)
    sizes = draw.integers(1, LONGEST + 1, count)
    ids = [draw.integers(1, 90, size).astype(np.uint16) for size in sizes]
    return [Feature(i, [row], [np.zeros(len(row), np.uint8)]) for i, row in enumerate(ids)]


def build_encoder():
    """Return an encoder, and a list with an entry for each of its calls."""
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "num_hidden_layers": 5, "num_attention_heads": 4}
    encoder = BertModel(BertConfig(vocab_size=90, intermediate_size=256, **shape)).eval()
    calls = []
    encoder.register_forward_pre_hook(lambda *_: calls.append(1))
    return encoder, calls


def test_a_text_always_has_the_same_states(tmp_path):
    encoder, calls = build_encoder()
    device, texts = open_device("cpu", "fp32"), write_texts(60)

    def compute(part, cache=None):
        return frozen.compute_states(encoder, part, LONGEST, device, cache)

    whole = compute([*texts, texts[0]])
    assert np.array_equal(whole[-1], whole[0])
    inputs = torch.tensor(texts[7].ids[0].astype(np.int64))[None]
    with torch.no_grad():
        layers = encoder(inputs, output_hidden_states=True).hidden_states[-4:]
    np.testing.assert_allclose(whole[7], torch.cat(layers, -1)[0].mean(0), atol=1e-5)
    for i in range(0, 60, 7):
        assert np.array_equal(compute(texts[i : i + 1])[0], whole[i])
    assert np.array_equal(compute(texts[:20], tmp_path), whole[:20])
    assert np.array_equal(compute(texts[10:], tmp_path), whole[10:60])
    calls.clear()
    assert np.array_equal(compute(texts[::-1], tmp_path), whole[:60][::-1])
    assert not calls, "all states were kept"
    next(tmp_path.glob("states-*.safetensors")).write_bytes(b"damaged")
    assert np.array_equal(compute(texts[:3], tmp_path), whole[:3])


def test_arms_side_by_side_compute_a_text_once(tmp_path):
    encoder, calls = build_encoder()
    device, texts = open_device("cpu", "fp32"), write_texts(60)

    def compute(cache):
        return frozen.compute_states(encoder, texts, LONGEST, device, cache)

    compute(tmp_path / "alone")
    alone = len(calls)
    calls.clear()
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(compute, [tmp_path / "shared"] * 3)
    assert len(calls) == alone
    assert all(np.array_equal(first, one) for one in others)


def test_a_dead_state_has_no_weight():
    """MiniLM has states of 1e-33; made as wide as the others, they had weights of 1e29, and the
    int8 graph answers of 1e22.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    states = rng.normal(size=(200, 8)).astype(np.float32)
    states[:, 0] += labels
    states[:, 3] = (labels * 2 - 1) * 1e-33

    layer, fitted, _ = frozen.fit_layer(
        states, labels, 2, np.arange(200), np.empty((0, 8), np.float32)
    )

    assert np.abs(layer.weights).max() < 10
    assert fitted.tried[0].accuracy < 0.95


def test_the_files_unused_for_longest_go(tmp_path, monkeypatch):
    arrays, files = {"a": np.zeros(1000, np.uint8)}, [tmp_path / f"{i}.safetensors" for i in (0, 1)]
    for age, file in enumerate(files):
        cache.keep_arrays(arrays, file)
        os.utime(file, (age, age))
    assert cache.read_arrays(files[0])["a"].tolist() == [0] * 1000  # is used again now
    monkeypatch.setattr(cache, "FOLDER_BYTES", 2.5 * files[0].stat().st_size)
    cache.keep_arrays(arrays, tmp_path / "new.safetensors")
    assert {*tmp_path.iterdir()} == {files[0], tmp_path / "new.safetensors"}
