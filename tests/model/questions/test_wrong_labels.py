"""Wrong labels are found where it is known which are wrong, and none where none is."""

import numpy as np

from amazon_electra.model.questions.wrong_labels import MIN_SHARE, find_wrong_labels


def simulate(seed: int, n: int, flips: int, classes: int = 3, strength: float = 5):
    """Return out-of-fold probabilities, labels and which of these were flipped; the model is right
    in all, with a strength of 2.5 in 93%, of 1 in 64%.
    """
    draw = np.random.default_rng(seed)
    truth = draw.integers(classes, size=n)
    logits = draw.normal(0, 1, (n, classes))
    logits[np.arange(n), truth] += strength
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    flipped = draw.choice(n, flips, replace=False)
    labels = truth.copy()
    labels[flipped] = (truth[flipped] + 1 + draw.integers(classes - 1, size=flips)) % classes
    return probabilities, labels, set(flipped.tolist())


def count_found(probabilities, labels, flipped) -> int:
    first = find_wrong_labels(probabilities, labels).suspicions[:100]
    return sum(one.place in flipped for one in first)


def test_flipped_labels_are_listed_first_and_counted():
    is_inside, estimates = [], []
    for seed in range(20):
        probabilities, labels, flipped = simulate(seed, 1500, 75)
        found = find_wrong_labels(probabilities, labels)
        assert count_found(probabilities, labels, flipped) >= 70
        is_inside.append(found.low <= 75 <= found.high)
        estimates.append(found.estimate)
        shuffled = np.random.default_rng(seed).permutation(probabilities)
        assert count_found(shuffled, labels, flipped) < 40  # the test sees a broken method
    assert sum(is_inside) >= 18
    assert 60 <= np.mean(estimates) <= 90


def test_labels_without_a_wrong_one_are_not_accused():
    for seed in range(20):
        found = find_wrong_labels(*simulate(seed, 1500, 0, strength=2.5)[:2])
        assert found.low <= MIN_SHARE * 1500
        assert find_wrong_labels(*simulate(seed, 1500, 150)[:2]).low > MIN_SHARE * 1500


def test_as_many_labels_are_listed_as_may_be_wrong():
    for flips in (0, 150):
        found = find_wrong_labels(*simulate(0, 1500, flips, strength=2.5)[:2])
        most = found.high if flips else MIN_SHARE * 1500
        assert most <= found.most_listed < most + 1 < len(found.suspicions) + flips


def test_mistakes_of_the_model_are_not_counted():
    """One answer in 14 is wrong, and one label in twenty."""
    is_inside, listed = [], []
    for seed in range(20):
        found = find_wrong_labels(*simulate(seed, 1500, 75, strength=2.5)[:2])
        is_inside.append(found.low <= 75 <= found.high)
        listed.append(len(found.suspicions))
    assert sum(is_inside) >= 17
    assert np.mean(listed) > 150


def test_a_weak_model_does_not_say_how_many_are_wrong():
    for seed in range(20):
        found = find_wrong_labels(*simulate(seed, 1500, 0, strength=1)[:2])
        assert (found.estimate, found.low, found.high) == (None, None, None)
        own = [one.own for one in found.suspicions]
        assert own == sorted(own)


def test_the_next_step_of_a_scale_is_not_wrong():
    draw = np.random.default_rng(0)
    truth = draw.integers(5, size=1_500)
    given = np.clip(truth + draw.choice((-1, 0, 1), size=1_500), 0, 4)
    logits = -((truth[:, None] - np.arange(5)) ** 2.0) + draw.normal(size=(1_500, 5)) / 4
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert find_wrong_labels(probabilities, given).estimate > 400
    flipped = draw.choice(np.flatnonzero(truth % 4 == 0), 75, replace=False)
    given[flipped] = 4 - truth[flipped]
    found = find_wrong_labels(probabilities, given, steps=2)
    assert {one.place for one in found.suspicions[:70]} < set(flipped.tolist())
    assert found.low <= 75 <= found.high
