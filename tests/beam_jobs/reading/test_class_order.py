"""Classes that are steps of a scale are ordered, others are not."""

import random

import pytest

from amazon_electra.beam_jobs.labels.classes import choose_classes, order_classes

ORDERED = (
    ["poor", "Fair", "GOOD", "Very  good"],
    ["Low", "Medium", "High"],
    ["1 - Very bad", "2 - Bad", "3 - OK", "4 - Good", "5 - Excellent"],
    ["3: unzufrieden", "2: gut", "1: sehr gut"],
    ["😡", "🙁", "😐", "🙂", "😍"],
    ["★☆☆☆☆", "★★★☆☆", "★★★★★"],
    ["1 star", "2 stars", "5 stars"],
    ["Detractor", "Passive", "Promoter"],
)
UNORDERED = (
    *(["1", "2", "3"], ["05", "10", "9"], ["1. Billing", "2. Delivery", "3. Returns"]),
    *(["price", "taste", "delivery"], ["good", "bad", "broken"], ["good", "bad"]),
    *(["ok", "average", "good"], ["🙂", "😊", "😡"], []),
)


@pytest.mark.parametrize("classes", ORDERED)
def test_steps_of_a_scale_are_ordered(classes):
    mixed = random.Random(0).sample(classes, len(classes))
    assert order_classes(mixed) == classes
    found = choose_classes({f"train.{name}": 10 for name in mixed} | {"train.other": 2})
    assert found["classes"] == classes
    assert found["is_ordered"]


@pytest.mark.parametrize("classes", UNORDERED)
def test_what_may_be_a_name_has_no_order(classes):
    assert order_classes(classes) == []
    assert "is_ordered" not in choose_classes({f"train.{name}": 10 for name in classes})
