"""A batch: what may be masked, its totals, and that it is the same however it is dealt out."""

import numpy as np
import pytest
import torch

from amazon_electra.model.pretraining.input import masking
from amazon_electra.model.pretraining.input.batches import Batches, SpecialTokens
from tests.model.pretraining.input.rows import CLS, MASK, SEP, build_rows

DOCUMENTS = [
    [[[10, 11, 12], [13, 14]], [[15, 16]]],
    [[[17, 18, 19, 20], [21, 22, 23]]],
    [[[24]], [[25, 26], [27]]],
    [[[28, 29], [30, 31]]],
]
"""Lengths with specials: 7 and 4; 9; 3 and 5; 6."""
ROWS = build_rows(DOCUMENTS, 12)


class Repeated:
    """The same rows at every place, those of each place rotated by it."""

    def iterate_batches(self, position, size):
        while True:
            yield ROWS.take((position + np.arange(size)) % len(ROWS.lengths))
            position += size


def batches_of(**more):
    how = masking.Replacement(MASK, 0.8, 0.1, 100)
    made = {"size": 4, "fraction": 0.4, "replacement": how, "seed": 0} | more
    return Batches(stream=Repeated(), special=SpecialTokens(CLS, SEP, MASK), **made)


def mask(batches, arrays):
    """Return a batch with its masks, as arrays."""
    tensors = {name: torch.as_tensor(array) for name, array in arrays.items()}
    return {name: tensor.numpy() for name, tensor in batches.mask(tensors).items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name


def assert_are_parts(parts, whole):
    """Their rows are those of the whole batch, their totals the same."""
    for name, array in whole.items():
        if array.ndim:
            assert np.array_equal(np.concatenate([part[name] for part in parts]), array), name
        else:
            assert [part[name] for part in parts] == [array, array], name


def test_only_words_are_masked():
    batches, seen = batches_of(), set()
    for step in range(100):
        made = mask(batches, batches.prepare_batch(ROWS, step))
        used = made["masked_weights"] > 0
        words = np.take_along_axis(made["input_ids"], made["masked_positions"], axis=1)
        seen |= set(words[used].tolist())
        kept = np.ones(ROWS.input_ids.shape, bool)
        np.put_along_axis(kept, made["masked_positions"], ~used, axis=1)
        assert np.array_equal(made["masked_ids"][kept], made["input_ids"][kept])
    assert seen == set(range(10, 32))


def test_totals_are_those_of_the_whole_batch():
    made = mask(batches_of(), batches_of().prepare_batch(ROWS, 0))
    assert np.array_equal(made["input_ids"], ROWS.input_ids)
    assert made["real_total"] == 7 + 4 + 9 + 3 + 5 + 6
    assert made["squared_total"] == 7**2 + 4**2 + 9**2 + 3**2 + 5**2 + 6**2
    assert made["masked_total"] == made["masked_weights"].sum()
    assert abs(made["masked_total"] - 0.4 * 22) < 1
    assert "types" not in made


def test_a_total_is_never_zero():
    nothing = build_rows([[[[]]], [[[]]]], 4)
    made = batches_of(size=2).prepare_batch(nothing, 0)
    assert (made["masked_total"], made["masked_counts"].sum()) == (1.0, 0.0)
    pairs = batches_of(size=2, pairs=True).prepare_batch(nothing, 0)
    assert (pairs["pairs_total"], pairs["pair_weights"].sum()) == (1.0, 0.0)


def test_a_resumed_run_sees_the_same_batches():
    whole = batches_of().iterate_steps(0)
    steps = [next(whole) for _ in range(6)]
    resumed = batches_of().iterate_steps(4)
    for step in steps[4:]:
        assert_same(next(resumed), step)
    masks = {mask(batches_of(), step)["masked_positions"].tobytes() for step in steps}
    assert len(masks) == 6
    other = mask(batches_of(), next(batches_of(seed=1).iterate_steps(0)))
    assert other["masked_positions"].tobytes() not in masks


@pytest.mark.parametrize("more", [{}, {"pairs": True}, {"segment_probability": 0.5}])
def test_processes_share_the_batch_of_one(more):
    [whole] = [next(batches_of(**more).iterate_steps(3))]
    parts = [next(batches_of(rank=r, world_size=2, **more).iterate_steps(3)) for r in (0, 1)]
    assert_are_parts(parts, whole)


def test_segments_have_random_numbers_of_their_own():
    """Cutting documents in two changes no mask."""
    plain, cut = (batches_of(segment_probability=p).prepare_batch(ROWS, 5) for p in (0.0, 1.0))
    for name in ("masked_counts", "masking_keys"):
        assert np.array_equal(plain[name], cut[name])
    assert set(cut["types"].ravel().tolist()) == {0, 1}
    assert [np.flatnonzero(row)[0] for row in cut["types"]] == [4, 5, 6, 3]
