import numpy as np
import pytest
import torch

from amazon_electra.model.pretraining.input import masking

MASK = 4


def mask(rng, maskable, fraction, *shares, ids=None):
    """Mask a batch as the host asks the device to; return what it gives, as arrays."""
    counts = masking.draw_counts(rng, maskable.sum(axis=1), fraction)
    keys = rng.integers(0, 2**31, size=len(maskable))
    ids = np.full(maskable.shape, 7) if ids is None else ids
    tensors = [torch.as_tensor(array) for array in (ids, maskable, counts, keys)]
    replacement = masking.Replacement(MASK, *(shares or (0.85, 0.0)), 1000)
    masked = masking.mask_tokens(*tensors, fraction, replacement)
    return {name: tensor.numpy() for name, tensor in masked.items()}


def batch(rng, sequences=64, length=128):
    """Ids, and which may be masked: of some sequences only a few tokens."""
    ids = rng.integers(5, 1000, size=(sequences, length))
    maskable = rng.random((sequences, length)) < rng.random((sequences, 1))
    return ids, maskable


@pytest.mark.parametrize("fraction", [0.15, 0.4])
def test_exactly_the_fraction_and_never_a_token_twice(fraction):
    rng = np.random.default_rng(0)
    for _ in range(20):
        _, maskable = batch(rng)
        masked = mask(rng, maskable, fraction)
        positions, weights = masked["masked_positions"], masked["masked_weights"]
        assert abs(weights.sum() - fraction * maskable.sum()) < 1
        assert (np.abs(weights.sum(1) - fraction * maskable.sum(1)) < 1).all()
        assert all(len(set(row)) == len(row) for row in positions)
        assert np.take_along_axis(maskable, positions, axis=1)[weights > 0].all()
        assert positions.shape == (64, masking.count_slots(128, fraction))


def test_every_token_is_as_likely():
    rng = np.random.default_rng(1)
    maskable = np.ones((200, 40), dtype=bool)
    seen, pairs = np.zeros(40), np.zeros((40, 40))
    for _ in range(100):
        masked = mask(rng, maskable, 0.15)
        chosen = np.zeros(maskable.shape)
        np.put_along_axis(chosen, masked["masked_positions"], masked["masked_weights"], axis=1)
        seen += chosen.sum(axis=0)
        pairs += chosen.T @ chosen
    assert seen / 20_000 == pytest.approx(np.full(40, 0.15), abs=0.015)
    apart = pairs[~np.eye(40, dtype=bool)] / 20_000
    assert apart == pytest.approx(np.full(apart.shape, 6 * 5 / (40 * 39)), abs=0.008)


def test_a_row_is_masked_alike_in_every_batch():
    rng = np.random.default_rng(4)
    ids, maskable = (torch.as_tensor(array) for array in batch(rng))
    counts, keys = torch.full((64,), 9), torch.as_tensor(rng.integers(0, 2**31, size=64))
    how = masking.Replacement(MASK, 0.8, 0.1, 1000)
    whole = masking.mask_tokens(ids, maskable, counts, keys, 0.15, how)
    part = slice(5, 8)
    rows = (tensor[part] for tensor in (ids, maskable, counts, keys))
    for name, tensor in masking.mask_tokens(*rows, 0.15, how).items():
        assert torch.equal(tensor, whole[name][part]), name


def test_what_is_put_there():
    rng = np.random.default_rng(2)
    ids, maskable = batch(rng, sequences=500)
    masked = mask(rng, maskable, 0.15, 0.8, 0.1, ids=ids)
    used, positions = masked["masked_weights"] > 0, masked["masked_positions"]
    before = np.take_along_axis(ids, positions, axis=1)[used]
    after = np.take_along_axis(masked["masked_ids"], positions, axis=1)[used]
    assert (after == MASK).mean() == pytest.approx(0.8, abs=0.02)
    assert (after == before).mean() == pytest.approx(0.1, abs=0.02)
    is_random = (after != before) & (after != MASK)
    assert is_random.mean() == pytest.approx(0.1, abs=0.02)
    assert after[is_random].min() >= 5
    assert after[is_random].mean() == pytest.approx(502, abs=25)
    changed = masked["masked_ids"] != ids
    assert changed.sum() <= used.sum()
