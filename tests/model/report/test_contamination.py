"""What the report says of texts that an encoder may have seen before it is tested on them."""

from pathlib import Path

import pytest

from amazon_electra.beam_jobs.deduplication import held_out
from amazon_electra.model.report.inputs import ReportInput
from amazon_electra.model.report.report import (
    COMMON_TEXTS,
    describe_labels,
    describe_withheld_texts,
    list_exposures,
    list_leak_warnings,
)
from amazon_electra.model.report.results import Cell, Results
from tests.model.report.evaluations import render, said, write_cells

TASKS = ["polarity", "stars"]


def describe(arms, origins=None):
    cell = {"arm": "a", "task": "p", "seed": 0, "evaluation": "e"}
    told = {"arms": arms, "origins": origins or {}, "cells": [cell]}
    return ReportInput.model_validate(told)


def list_warnings(arms, origins=None):
    return list(list_leak_warnings(describe(arms, origins), TASKS))


@pytest.mark.parametrize(
    ("told", "words"),
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
def test_what_an_origin_has_seen_is_told_in_one_line_for_all_arms_that_begin_with_it(told, words):
    arms = [
        {"name": "adapted", "origin": "f00", "data_known": True, "held_out": TASKS},
        {"name": "as published", "origin": "f00", "data_known": False},
        {"name": "random"},
    ]
    [line] = list_warnings(arms, {"f00": {"name": "mini", **told}})
    assert line.startswith(f"The texts that mini was trained on {words} They may include test")
    assert "the results of adapted, as published may be too good" in line


def test_arms_whose_names_hold_commas_are_told_apart():
    names = ("adapted in-domain", "adapted, for long")
    arms = [{"name": name, "origin": "f00", "held_out": TASKS} for name in names]
    [line] = list_warnings(arms, {"f00": {"name": "mini"}})
    assert "the results of adapted in-domain; adapted, for long may be too good" in line


def test_two_origins_have_a_line_each_with_their_own_arms():
    arms = [{"name": "a", "origin": "f00"}, {"name": "b", "origin": "b0b"}]
    lines = list_warnings(arms, {"f00": {"name": "mini"}, "b0b": {"name": "tiny"}})
    assert ["that mini" in lines[0], "results of a may" in lines[0]] == [True, True]
    assert ["that tiny" in lines[1], "results of b may" in lines[1]] == [True, True]


def test_adapting_on_texts_that_are_tested_on_is_told_besides():
    arms = [{"name": "adapted", "origin": "f00", "held_out": ["stars"]}]
    lines = list_warnings(arms, {"f00": {"name": "mini"}})
    assert len(lines) == 2
    assert "test texts of polarity were withheld from the pre-training of adapted" in lines[1]


def test_without_an_origin_only_what_nothing_is_known_of_is_warned_about():
    arms = [
        {"name": "ours", "data_known": True, "held_out": TASKS},
        {"name": "found", "data_known": False},
    ]
    [line] = list_warnings(arms)
    assert line.startswith("Nothing is known of the texts that the encoder of found was trained on")
    assert list_warnings([{"name": "ours", "held_out": TASKS}, {"name": "random"}]) == []


def test_the_promise_says_which_phrases_are_compared_with_some_texts_only():
    arms = [{"name": "ours", "data_known": True, "held_out": TASKS}]
    [_, paragraph] = describe_withheld_texts(describe(arms), TASKS)
    assert "with three words or more" in paragraph.text
    assert "A phrase of eight words that more than 100 dev and test texts share" in paragraph.text
    assert COMMON_TEXTS == held_out.COMMON_TEXTS


def test_without_a_pre_training_there_is_no_statement_and_without_a_withheld_task_no_promise():
    assert describe_withheld_texts(describe([{"name": "random"}]), ["stars"]) == []
    arms = [{"name": "a", "held_out": []}, {"name": "b", "held_out": ["stars"]}]
    [_, paragraph] = describe_withheld_texts(describe(arms), ["stars"])
    assert "For no task is it shown" in paragraph.text


def test_a_task_whose_source_an_origin_was_trained_on_is_marked():
    names = {"ePQA": "table:text=question,label=answer", "subjqa": "subjqa", "cola": "cola"}
    names |= {"q": "amazonqa-answerable"}
    cells = [Cell("a", name, 0, Path(), {"task": task}, None) for name, task in names.items()]
    unknown = Results(cells, training_data="unknown")
    assert [unknown.mark_task(task) for task in names] == list(names)
    assert list(list_exposures(unknown)) == []
    exposed = Results(cells, training_data="s2orc, amazon-qa-train-pairs")
    assert [exposed.mark_task(task) for task in names] == ["ePQA †", "subjqa †", "cola", "q †"]
    [line] = list_exposures(exposed)
    assert "of the source of ePQA, subjqa in part, q:" in line


def test_every_table_marks_an_exposed_task(tmp_path):
    cells = write_cells(tmp_path, {n: lambda _, seed: said(0.8, seed) for n in ("a", "b")})
    origins = {"f00": {"name": "mini", "training_data": "amazon_polarity"}}
    arms = [{"name": "a", "origin": "f00", "data_known": False}, {"name": "b"}]
    _, text = render(tmp_path, cells, arms=arms, origins=origins)
    rows = [line for line in text.splitlines() if line.startswith("|") and " polarity" in line]
    assert len(rows) == 3 + 4  # two classes of two arms have a row each
    assert all("polarity †" in row for row in rows)
    assert "†: a published encoder of this study was trained on texts of this source" in text


def test_labels_that_a_probe_read_are_told():
    arms = [{"name": "adapted", "written_steps": [9]}, {"name": "random"}]
    [told] = describe_labels(describe(arms), Results([]))
    assert "By a probe of adapted on labels of train and dev, which all arms read" in told.text
    [plain] = describe_labels(describe([{"name": "random"}]), Results([]))
    assert "probe" not in plain.text
