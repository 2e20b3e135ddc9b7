import numpy as np
import pytest

from model.pretraining.input import masking

MASK = 4


def batch(rng, sequences=64, length=128):
    """Ids, and which may be masked: of some sequences only a few tokens."""
    ids = rng.integers(5, 1000, size=(sequences, length))
    maskable = rng.random((sequences, length)) < rng.random((sequences, 1))
    return ids, maskable


def choose(rng, maskable, fraction):
    numbers = masking.draw_counts(rng, maskable.sum(axis=1), fraction)
    width = masking.count_slots(maskable.shape[1], fraction)
    return masking.choose_positions(rng, maskable, numbers, width)


@pytest.mark.parametrize("fraction", [0.15, 0.4])
def test_exactly_the_fraction_and_never_a_token_twice(fraction):
    rng = np.random.default_rng(0)
    for _ in range(20):
        _, maskable = batch(rng)
        positions, weights = choose(rng, maskable, fraction)
        assert abs(weights.sum() - fraction * maskable.sum()) < 1
        assert (np.abs(weights.sum(1) - fraction * maskable.sum(1)) < 1).all()
        assert all(len(set(row)) == len(row) for row in positions)
        assert np.take_along_axis(maskable, positions, axis=1)[weights > 0].all()
        assert positions.shape == (64, masking.count_slots(128, fraction))


def test_every_token_is_as_likely():
    rng = np.random.default_rng(1)
    maskable = np.ones((200, 40), dtype=bool)
    seen = np.zeros(40)
    for _ in range(100):
        positions, weights = choose(rng, maskable, 0.15)
        seen += np.bincount(positions[weights > 0], minlength=40)
    assert seen / 20_000 == pytest.approx(np.full(40, 0.15), abs=0.015)


def test_every_position_has_random_numbers_of_its_own():
    """The generator's draws are seeded by the keys: equal ones would draw alike."""
    rng = np.random.default_rng(3)
    ids, maskable = batch(rng)
    replacement = masking.Replacement(MASK, 0.85, 0.0, 1000)
    keys = masking.mask_tokens(rng, ids, maskable, 0.15, replacement).keys
    assert len(np.unique(keys)) == keys.size
    assert 2**30 < keys.max() < 2**31


def test_what_is_put_there():
    rng = np.random.default_rng(2)
    ids, maskable = batch(rng, sequences=500)
    masked = masking.mask_tokens(
        rng, ids, maskable, 0.15, masking.Replacement(MASK, 0.8, 0.1, 1000)
    )
    used = masked.weights > 0
    before = np.take_along_axis(ids, masked.positions, axis=1)[used]
    after = np.take_along_axis(masked.input_ids, masked.positions, axis=1)[used]
    assert (after == MASK).mean() == pytest.approx(0.8, abs=0.02)
    assert (after == before).mean() == pytest.approx(0.1, abs=0.02)
    assert ((after != before) & (after != MASK)).mean() == pytest.approx(0.1, abs=0.02)
    changed = masked.input_ids != ids
    assert changed.sum() <= used.sum()
