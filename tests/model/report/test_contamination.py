"""What the report says of texts that an encoder may have seen before it is tested on them."""

import pytest

from tests.model.report.evaluations import render, write_cells

TASKS = ["polarity", "stars"]


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """Return the report of two tasks with these arms, and its warnings."""
    folder = tmp_path_factory.mktemp("report")
    cells = [write_cells(folder, {"random": 0.8}, seeds=[0], task=task)[0] for task in TASKS]

    def write(arms, origins=None):
        _, text = render(folder, cells, arms=arms, origins=origins or {})
        mark = "> **Warning:** "
        lines = [one.removeprefix(mark) for one in text.splitlines() if one.startswith(mark)]
        return text, lines

    return write


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("unknown", "are unknown."),
        (None, "are unknown."),
        ("s2orc, eli5", "are, by what comes with it, “s2orc, eli5”."),
        (", ".join("abcdefgh"), "are, by what comes with it, “a, b, c, d, e, f” and 2 more."),
    ],
)
def test_what_an_origin_has_seen_is_one_line_for_all_arms_that_begin_with_it(data, words, write):
    arms = [
        {"name": "adapted", "origin": "f00", "data_known": True, "held_out": TASKS},
        {"name": "published, as it is", "origin": "f00", "data_known": False},
        {"name": "random"},
    ]
    _, [line] = write(arms, {"f00": {"name": "mini", "training_data": data}})
    assert line.startswith(f"The texts that mini was trained on {words} They may include test")
    assert "the results of adapted; published, as it is may be too good" in line


def test_two_origins_have_a_line_each_and_so_have_texts_that_were_not_withheld(write):
    arms = [{"name": "a", "origin": "f00", "held_out": ["stars"]}, {"name": "b", "origin": "b0b"}]
    text, lines = write(arms, {"f00": {"name": "mini"}, "b0b": {"name": "tiny"}})
    assert "is in the pre-training of" not in text
    assert ["that mini" in lines[0], "results of a may" in lines[0]] == [True, True]
    assert ["that tiny" in lines[1], "results of b may" in lines[1]] == [True, True]
    assert "test texts of polarity were withheld from the pre-training of a" in lines[2]


def test_without_an_origin_only_what_nothing_is_known_of_is_warned_about(write):
    ours = {"name": "ours", "data_known": True, "held_out": TASKS}
    text, [line] = write([ours, {"name": "found", "data_known": False}])
    assert "No test text with three words or more is in the pre-training of ours" in text
    assert line.startswith("Nothing is known of the texts that the encoder of found was trained on")
    assert write([ours, {"name": "random"}])[1] == []
