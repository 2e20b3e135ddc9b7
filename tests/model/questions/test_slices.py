"""Weak slices are those that are weak: named where one is, none where none is."""

import numpy as np

from amazon_electra.model.questions.slices import describe_fields, find_slices

FIELDS = {"shop": 5, "language": 3, "file": 8}


def simulate(seed, weak=0.0):
    """Return which answers are right, and fields; those of file 3 are wrong more often."""
    draw = np.random.default_rng(seed)
    fields = {name: [str(i) for i in draw.integers(n, size=1500)] for name, n in FIELDS.items()}
    rates = np.where(np.array(fields["file"]) == "3", 0.9 - weak, 0.9)
    return draw.random(1500) < rates, fields


def test_a_weak_slice_is_named_and_no_other():
    alarms, is_inside, of_shuffled = 0, 0, 0
    for seed in range(20):
        right, fields = simulate(seed, weak=0.25)
        found = find_slices(right.tolist(), fields)
        assert (found[0].field, found[0].value) == ("file", "3")
        assert found[0].is_weak
        is_inside += found[0].low <= 0.65 <= found[0].high
        alarms += sum(one.is_weak for one in found[1:])
        shuffled = np.random.default_rng(seed).permutation(right)
        of_shuffled += any(one.is_weak for one in find_slices(shuffled, fields))
        assert len(found) == sum(FIELDS.values())
    assert is_inside >= 17
    assert max(alarms, of_shuffled) <= 3  # the test sees a broken method


def test_no_slice_is_weak_where_none_is():
    alarms = sum(any(one.is_weak for one in find_slices(*simulate(seed))) for seed in range(40))
    assert alarms <= 5  # of 2 that a level of 5% allows on average


def test_a_slice_is_weak_on_both_sides_or_not_at_all():
    is_test = np.arange(1500) % 3 == 0
    named = 0
    for seed in range(20):
        right, fields = simulate(seed, weak=0.25)
        named += find_slices(right, fields, is_test)[0].is_weak
        by_chance = right | (np.array(fields["file"]) == "3") & is_test  # weak on one side alone
        found = find_slices(by_chance, fields, is_test)
        assert not any(one.is_weak for one in found)
        assert find_slices(by_chance, fields)[0].is_weak
    assert named >= 15


def test_most_of_the_reviews_are_no_slice():
    languages = ["en"] * 920 + ["de"] * 80
    right = np.arange(1000) % 10 > 0
    assert [one.value for one in find_slices(right, {"language": languages})] == ["de"]


def test_reviews_have_a_value_of_each_field():
    texts = ["Works.", "Der Koffer war schon nach einer Woche kaputt, sehr schade. " * 4]
    records = [{"file": "a.csv", "stars": 4}, {"stars": None, "month": "2026-06"}]
    assert describe_fields(texts, records) == {
        "length": ["0 to 10 words", "30 to 100 words"],
        "language": ["unknown", "de"],
        "file": ["a.csv", "unknown"],
        "month": ["unknown", "2026-06"],
    }
