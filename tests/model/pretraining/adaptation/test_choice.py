"""The choice of a probe: states are compared on the same reviews."""

import numpy as np
import pytest

from model.pretraining.adaptation.choice import (
    Choice,
    compare_accuracies,
    is_worse,
    is_worth_writing,
    pack_judged,
    unpack_judged,
)
from model.pretraining.adaptation.config import AdaptationConfig

ORIGIN = np.arange(1000) < 700
BETTER = np.arange(1000) < 710  # right wherever the origin is, and ten times more
OTHER = np.roll(BETTER, 150)  # as much better, and right elsewhere


def test_the_error_is_that_of_the_difference():
    gain, error = compare_accuracies(BETTER, ORIGIN)
    assert (gain, error) == (pytest.approx(0.01), pytest.approx(0.00315, abs=1e-5))
    alone = np.sqrt(0.7 * 0.3 / 1000)
    assert gain < alone < 5 * error


def test_a_state_must_beat_the_loaded_one_by_the_margin():
    assert is_worth_writing(BETTER, ORIGIN, ORIGIN, margin=2)
    assert not is_worth_writing(BETTER, ORIGIN, ORIGIN, margin=3)
    assert not is_worth_writing(ORIGIN, ORIGIN, ORIGIN, margin=0)
    gain, error = compare_accuracies(OTHER, ORIGIN)
    assert 0 < gain < error
    assert is_worth_writing(OTHER, ORIGIN, ORIGIN, margin=0)
    assert not is_worth_writing(OTHER, ORIGIN, ORIGIN, margin=1)


def test_two_reviews_won_and_none_lost_are_no_evidence():
    two, three = (np.arange(1000) < 700 + won for won in (2, 3))
    gain, error = compare_accuracies(two, ORIGIN)
    assert gain > error
    assert not is_worth_writing(two, ORIGIN, ORIGIN, margin=1)
    assert is_worth_writing(three, ORIGIN, ORIGIN, margin=1)


def test_a_later_state_must_be_as_good_as_the_best():
    assert is_worth_writing(BETTER, BETTER, ORIGIN, margin=1)
    best = np.arange(1000) < 720
    assert not is_worth_writing(BETTER, best, ORIGIN, margin=1)
    assert is_worth_writing(np.roll(BETTER, 10), BETTER, ORIGIN, margin=0)


def test_a_state_that_has_read_enough_must_only_not_be_worse():
    worse = np.roll(ORIGIN, 20)  # as good, and right elsewhere
    worse[:10] = False
    far_worse = np.arange(1000) < 690
    assert not is_worse(ORIGIN, ORIGIN)
    assert not is_worse(worse, ORIGIN)
    assert is_worse(far_worse, ORIGIN)
    config = AdaptationConfig(trusted_tokens=1_000)
    choice = Choice()
    written = []
    for judged, tokens in (
        (ORIGIN, 0),
        (worse, 999),
        (worse, 1_000),
        (far_worse, 2_000),
        (ORIGIN, 3_000),
    ):
        choice.note(judged, config, tokens)
        written.append(choice.is_last_chosen)
    assert written == [False, False, True, False, True]
    assert "not worse than the loaded one" in choice.describe(30, config)


def test_without_trust_no_tokens_are_enough():
    choice, config = Choice(), AdaptationConfig(trusted_tokens=0)
    for tokens in (0, 10**9):
        choice.note(ORIGIN, config, tokens)
    assert not choice.is_last_chosen


@pytest.mark.parametrize("reviews", [1, 8, 322, 1000])
def test_what_is_judged_is_read_as_it_was_written(reviews):
    judged = np.random.default_rng(reviews).random(reviews) < 0.8
    assert np.array_equal(unpack_judged(pack_judged(judged), reviews), judged)
