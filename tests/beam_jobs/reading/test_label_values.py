"""Classes as people type them, and several values in a cell."""

import json
import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.labels.classes import choose_classes, order_classes
from amazon_electra.beam_jobs.labels.values import decide_values, split_classes
from tests.beam_jobs.dumps import review, rows_of, run_job, write_lines


def count_classes(typed, folds):
    values, counts = decide_values(typed, folds), Counter()
    for value, n in typed.items():
        if (found := values.find_class(value)) is not None:
            counts.update(
                dict.fromkeys(split_classes(found) if values.is_multilabel else [found], n)
            )
    return counts


SPELLINGS = {
    "case and spaces": ({"Too small": 3, "too  small ": 9, "no": 1}, {"too small": 12, "no": 1}),
    "missing": (
        {"a": 9, "n/a": 1, "NULL": 2, "None": 3, "nan": 1, "-": 1, "b": 2},
        {"a": 9, "b": 2},
    ),
    "numbers": (
        {"1": 3, "01": 5, "1,0": 1, "2": 1, "10": 4, "1.10": 2},
        {"01": 9, "2": 1, "10": 4, "1.10": 2},
    ),
    "truth": ({"true": 8, "1": 2, "0": 1}, {"true": 10, "0": 1}),
    "decimals": ({"4": 6, "5": 6, "4,5": 4}, {"4": 6, "5": 6, "4,5": 4}),
    "a comma": ({"Ärger, Rückgabe": 6, "zufrieden": 6}, {"Ärger, Rückgabe": 6, "zufrieden": 6}),
    "two signs": ({"a": 6, "b": 6, "a|c": 3, "c;a": 1}, {"a": 10, "b": 6, "c": 4}),
    "cells": ({"a": 6, "b": 6, "a|B": 3, "b|a": 1}, {"a": 10, "b": 10}),
    "a mistake": ({"a": 600, "b": 600, "a|b": 3}, {"a": 600, "b": 600}),
}


@pytest.mark.parametrize("what", SPELLINGS)
def test_the_classes_of_values(what):
    typed, classes = SPELLINGS[what]
    assert count_classes(typed, True) == classes
    assert count_classes(typed, False) == typed


def write_dump(folder, values):
    records = [review(i, why=values[i % len(values)]) for i in range(400)]
    return write_lines(folder / "dump.json", records)


def count_rows(folder):
    return Counter(row["label.why"] for row in rows_of(folder))


def test_a_corpus_folds_classes_and_counts_spellings(tmp_path):
    dump = write_dump(tmp_path, ["Late", "late", "LATE ", "late", "Broken", "n/a", None, "broken"])
    result = run_job(tmp_path / "a", "--input", dump, "--labels", "why")
    assert count_rows(tmp_path / "a") == {"late": 200, "Broken": 100, None: 100}
    assert result["labels"]["why"]["classes"] == ["Broken", "late"]
    assert result["label_values"]["why"]["n/a"] == 50
    typed = run_job(tmp_path / "b", "--input", dump, "--labels", "why", "--fold-labels", "false")
    once = dict.fromkeys(("Late", "LATE", "Broken", "broken", "n/a", None), 50)
    assert count_rows(tmp_path / "b") == {**once, "late": 100}
    assert "warnings" not in typed


def test_lists_and_repeated_columns_have_several_values(tmp_path):
    lists = [["late"], ["broken"], ["late", "broken"], ["broken", "late"], []]
    dump = write_dump(tmp_path, lists)
    result = run_job(tmp_path / "a", "--input", dump, "--labels", "why")
    several = {"late": 80, "broken": 80, "broken\x1flate": 160, "": 80}
    assert count_rows(tmp_path / "a") == several
    assert "warnings" not in result
    found = result["labels"]["why"]
    assert found["classes"] == ["broken", "late"]
    assert sum(found["counts"].values()) == 480
    assert sum(found["texts"].values()) == 400
    texts = [f"The kettle {i} boils" for i in range(400)]
    table = pa.table({"text": texts, "why": [lists[i % 5] for i in range(400)]})
    pq.write_table(table, tmp_path / "dump.parquet")
    run_job(tmp_path / "c", "--input", tmp_path / "dump.parquet", "--labels", "why")
    assert count_rows(tmp_path / "c") == several
    header = "text,why,why,why"
    cells = [[*values, "", "", ""][:3] for values in lists]
    rows = [f"The kettle {i} boils,{','.join(cells[i % 5])}" for i in range(400)]
    table = write_lines(tmp_path / "dump.csv", [header, *rows])
    run_job(tmp_path / "b", "--input", table, "--labels", "why")
    assert count_rows(tmp_path / "b") == several


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_columns_of_marks_are_one_label(tmp_path, kind):
    """A row without any mark has no label, one with zeros alone none of the classes."""
    marks = [(1, 0), (0, 1), (1, 1), (0, 0), (None, None)]
    rows = [(f"The kettle {i} boils", *marks[i % 5]) for i in range(400)]
    records = [dict(zip(("text", "late", "broken"), row, strict=True)) for row in rows]
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    dump = tmp_path / f"dump.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(records), dump)
    else:
        write_lines(dump, records if kind == "json" else ["text,late,broken", *lines])
    result = run_job(tmp_path / "a", "--input", dump, "--labels", "late+broken")
    values = Counter(row["label.late+broken"] for row in rows_of(tmp_path / "a"))
    assert values == {"late": 80, "broken": 80, "broken\x1flate": 80, "": 80, None: 80}
    assert result["labels"]["late+broken"]["classes"] == ["broken", "late"]
    assert result["columns"]["unused"] == []


def test_nested_choices_are_of_one_review(tmp_path):
    """As Label Studio writes them: the text stands beside the lists."""
    lists = [["late"], ["broken"], ["late", "broken"]]
    records = [
        {
            "data": {"text": f"The kettle {i} boils."},
            "annotations": [{"result": [{"value": {"choices": [c]}} for c in lists[i % 3]]}],
        }
        for i in range(300)
    ]
    (tmp_path / "a.json").write_text(json.dumps(records))
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "a.parquet")
    label = "annotations[].result[].value.choices[]"
    arguments = ("--columns", "text=data.text", "--labels", label)
    for kind in ("json", "parquet"):
        result = run_job(tmp_path / kind, "--input", tmp_path / f"a.{kind}", *arguments)
        assert result["read"] == 300
    assert sum(result["labels"][label]["texts"].values()) == 300
    assert set(result["labels"][label]["classes"]) == {"late", "broken"}


@pytest.mark.parametrize("folds", ["true", "false"])
def test_copies_with_different_classes_are_counted_and_none_wins(tmp_path, folds):
    """Of 200 texts 40 have two classes, and 20 one that is typed in two ways."""
    records = [review(i, f"The kettle {i} boils.", why=("good", "bad")[i % 2]) for i in range(200)]
    records += [review(i, f"The kettle {i} boils.", why="bad") for i in range(0, 80, 2)]
    records += [review(i, f"The kettle {i} boils.", why="GOOD") for i in range(80, 120, 2)]
    records += [review(i, f"The kettle {i} boils.", why=None) for i in range(120, 160)]
    dump = write_lines(tmp_path / "d.json", records)
    arguments = ("--labels", "why", "--fold-labels", folds)
    result = run_job(tmp_path / "a", "--input", dump, *arguments)
    twice = {} if folds == "true" else {"GOOD and good": 20}
    said = " ".join(result["warnings"])
    assert "40 texts with both bad and good" in said
    assert all(f"{n} texts with both {both}" in said for both, n in twice.items())
    labels = [row["label.why"] for row in rows_of(tmp_path / "a")]
    assert len(labels) == 200
    assert labels.count(None) >= 40 + sum(twice.values())


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
