"""What the report says of texts that an encoder may have seen before it is tested on them."""

import pytest

from tests.model.report.evaluations import render, said, write_cells

TASKS = ["polarity", "stars"]


@pytest.fixture
def list_warnings(tmp_path):
    """Return the warnings of a report of two tasks with these arms."""
    cells = []
    for task in TASKS:
        cells += write_cells(tmp_path / task, {"random": lambda _, s: said(0.8, s)}, seeds=[0])
        cells[-1] |= {"task": task, "evaluation": f"{task}/{cells[-1]['evaluation']}"}

    def list_warnings(arms, origins=None):
        _, text = render(tmp_path, cells, arms=arms, origins=origins or {})
        mark = "> **Warning:** "
        return [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]

    return list_warnings


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"training_data": "unknown"}, "are unknown."),
        ({}, "are unknown."),
        ({"training_data": "s2orc, eli5"}, "are, by what comes with it, “s2orc, eli5”."),
        (
            {"training_data": "a, b, c, d, e, f, g, h"},
            "are, by what comes with it, “a, b, c, d, e, f” and 2 more.",
        ),
    ],
)
def test_what_an_origin_has_seen_is_one_line_for_all_arms_that_begin_with_it(
    known, words, list_warnings
):
    arms = [
        {"name": "adapted", "origin": "f00", "data_known": True, "held_out": TASKS},
        {"name": "as published", "origin": "f00", "data_known": False},
        {"name": "random"},
    ]
    [line] = list_warnings(arms, {"f00": {"name": "mini", **known}})
    assert line.startswith(f"The texts that mini was trained on {words} They may include test")
    assert "the results of adapted, as published may be too good" in line


def test_two_origins_have_a_line_each_with_their_own_arms(list_warnings):
    """Names that hold commas are kept apart."""
    arms = [{"name": name, "origin": "f00", "held_out": TASKS} for name in ("a", "a, for long")]
    arms += [{"name": "b", "origin": "b0b"}]
    lines = list_warnings(arms, {"f00": {"name": "mini"}, "b0b": {"name": "tiny"}})
    assert ["that mini" in lines[0], "results of a; a, for long may" in lines[0]] == [True, True]
    assert ["that tiny" in lines[1], "results of b may" in lines[1]] == [True, True]


def test_adapting_on_texts_that_are_tested_on_is_a_warning_of_its_own(list_warnings):
    arms = [{"name": "adapted", "origin": "f00", "held_out": ["stars"]}]
    lines = list_warnings(arms, {"f00": {"name": "mini"}})
    assert len(lines) == 2
    assert "test texts of polarity were withheld from the pre-training of adapted" in lines[1]


def test_without_an_origin_only_what_nothing_is_known_of_is_warned_about(list_warnings):
    arms = [
        {"name": "ours", "data_known": True, "held_out": TASKS},
        {"name": "found", "data_known": False},
    ]
    [line] = list_warnings(arms)
    assert line.startswith("Nothing is known of the texts that the encoder of found was trained on")
    assert list_warnings([{"name": "ours", "held_out": TASKS}, {"name": "random"}]) == []


@pytest.mark.parametrize(
    ("held_out", "words"),
    [
        ([["polarity"]], "A phrase of eight words that more than 100 dev and test texts share"),
        ([[], ["polarity"]], "For no task is it shown"),
        ([], None),
    ],
)
def test_texts_are_withheld_by_what_is_shown_of_every_pre_training(held_out, words, tmp_path):
    cells = write_cells(tmp_path, {"random": lambda _, s: said(0.8, s)}, seeds=[0])
    arms = [{"name": f"arm {i}", "held_out": tasks} for i, tasks in enumerate(held_out)]
    _, text = render(tmp_path, cells, arms=[*arms, {"name": "random"}])
    found = text.partition("## Withheld from pre-training")[2]
    assert (words in found) if words else not found
