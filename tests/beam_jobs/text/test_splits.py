"""Which split a text falls on follows its hash, the shares and the seed, and nothing else."""

import numpy as np
import pytest

from amazon_electra.beam_jobs.deduplication.exact import hash_text
from amazon_electra.beam_jobs.text import splits
from tests.refusals import refuses


def test_the_split_follows_the_shares_and_the_seed():
    hashes = b"".join(hash_text(str(i)) for i in range(20_000))
    bounds = splits.parse_shares("pretrain=50,train=30,dev=0,test=20")
    sides = splits.assign_splits(hashes, bounds, seed=0)
    assert np.abs(np.bincount(sides, minlength=4) / 20_000 - [0.5, 0.3, 0, 0.2]).max() < 0.015
    assert 0.3 < np.mean(sides == splits.assign_splits(hashes, bounds, seed=1)) < 0.5


@pytest.mark.parametrize(
    "shares", ["train", "train=x", "training=5", "train=-1,dev=3", "train=0", "val=1,train=9"]
)
def test_shares_that_make_no_sense(shares):
    with refuses(field="split", value=shares):
        splits.parse_shares(shares)


def test_shares_are_added_up_in_the_order_of_the_splits_and_need_not_make_a_hundred():
    assert splits.parse_shares("test=2,pretrain=5,dev=1") == (0.625, 0.625, 0.75, 1.0)


def mix_bits(state: int) -> int:
    """Return splitmix64 as its authors give it (Steele, Lea and Flood 2014)."""
    wide = (1 << 64) - 1
    z = (state + 0x9E3779B97F4A7C15) & wide
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & wide
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & wide
    return z ^ (z >> 31)


@pytest.mark.parametrize("seed", [1, 2, 3_000_000_000])
def test_a_text_stays_where_it_was_in_every_version(seed):
    """A corpus that grows is cut as it was before: the mixture is splitmix64's, to the bit."""
    weyl = (seed - 1) * 0x9E3779B97F4A7C15
    for text in map(str, range(100)):
        mixed = mix_bits(int.from_bytes(hash_text(text)[8:], "big") + weyl)
        at = (mixed >> 11) / 2**53
        for bound, side in ((at, 1), (np.nextafter(at, 1), 0)):
            found = splits.assign_splits(hash_text(text), (float(bound), 1.0, 1.0, 1.0), seed)
            assert found.dtype == np.int8
            assert found.tolist() == [side]


def test_a_split_with_no_share_gets_not_even_the_smallest_hash():
    bounds = splits.parse_shares("train=50,test=50")
    assert splits.assign_splits(bytes(16), bounds, seed=0).tolist() == [
        splits.SPLITS.index("train")
    ]


@pytest.mark.parametrize(
    ("counts", "shares", "cut_offs"),
    [
        ([10] * 10, "pretrain=60,train=20,dev=10,test=10", (8, 9)),
        ([10] * 10, "train=80,test=20", (8, 8)),
        ([10] * 10, "train=80,dev=20", (8, 10)),
        ([50, 20, 10, 20], "train=60,dev=20,test=20", (1, 3)),
        ([1, 1, 98], "train=80,dev=10,test=10", (1, 2)),
        ([98, 1, 1], "train=80,dev=10,test=10", (1, 2)),
    ],
)
def test_whole_days_are_cut_off_as_near_to_the_shares_as_can_be(counts, shares, cut_offs):
    days = {100 + day: count for day, count in reversed([*enumerate(counts)])}
    dev, test = splits.find_cut_offs(days, splits.parse_shares(shares))
    assert (dev - 100, test - 100) == cut_offs


def test_days_from_the_cut_offs_on_are_dev_and_test_and_no_day_is_neither():
    days, bounds = [None, 3, 4, 5, 6, 7, 9], splits.parse_shares(splits.DEFAULT_SHARES)
    sides = splits.assign_by_day(days, (5, 7), bytes(16 * len(days)), bounds, seed=0)
    assert [splits.SPLITS[side] for side in sides] == 3 * ["pretrain"] + 2 * ["dev"] + 2 * ["test"]
