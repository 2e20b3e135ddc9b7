"""What the report says of texts that an encoder may have seen before it is tested on them."""

import pytest

from model.report.contamination import warn_of_contamination

TASKS = ["polarity", "stars"]


def list_warnings(arms, origins=None):
    study = {"arms": arms, **({"origins": origins} if origins else {})}
    blocks = warn_of_contamination(study, TASKS)
    assert {block.kind for block in blocks} <= {"warning"}
    return [block.text for block in blocks]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"training_data": "unknown"}, "before is unknown"),
        ({}, "before is unknown"),
        ({"training_data": "s2orc, eli5"}, "before is told as “s2orc, eli5”"),
    ],
)
def test_what_an_origin_has_seen_is_told_in_one_line_for_all_arms_that_begin_with_it(told, words):
    arms = [
        {"name": "adapted", "origin": "f00", "data_known": True, "held_out": TASKS},
        {"name": "as published", "origin": "f00", "data_known": False},
        {"name": "random"},
    ]
    [line] = list_warnings(arms, {"f00": {"name": "mini", **told}})
    assert line.startswith(f"What mini was trained on {words}; nobody here can tell whether texts")
    assert "the results of adapted, as published may be too good" in line


def test_two_origins_have_a_line_each_with_their_own_arms():
    arms = [{"name": "a", "origin": "f00"}, {"name": "b", "origin": "b0b"}]
    lines = list_warnings(arms, {"f00": {"name": "mini"}, "b0b": {"name": "tiny"}})
    assert ["What mini" in lines[0], "results of a may" in lines[0]] == [True, True]
    assert ["What tiny" in lines[1], "results of b may" in lines[1]] == [True, True]


def test_adapting_on_texts_that_are_tested_on_is_told_besides():
    arms = [{"name": "adapted", "origin": "f00", "held_out": ["stars"]}]
    lines = list_warnings(arms, {"f00": {"name": "mini"}})
    assert len(lines) == 2
    assert "test texts of polarity were withheld from what adapted was pre-trained on" in lines[1]


def test_without_an_origin_only_what_nothing_is_known_of_is_warned_about():
    arms = [
        {"name": "ours", "data_known": True, "held_out": TASKS},
        {"name": "found", "data_known": False},
    ]
    [line] = list_warnings(arms)
    assert line.startswith("what the encoder of found was trained on is unknown")
    assert list_warnings([{"name": "ours", "held_out": TASKS}, {"name": "random"}]) == []
