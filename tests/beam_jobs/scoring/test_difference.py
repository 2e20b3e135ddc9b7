"""Two folders of scores: the changed rows are those of a join by hand, with their cause."""

import csv
import json

import pandas as pd
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.scoring.difference import diff, read_scores, write_changes

CHANGES = {3: "text", 5: "model", 8: "model", 9: "threshold"}


def make_rows():
    """Return scores before and after; rows 3, 5, 8 and 9 have another answer."""
    before = pd.DataFrame(
        {
            "file": "shop.csv",
            "row": range(1, 21),
            "id": [f"0{n}" for n in range(1, 21)],
            "product": [f"B0{n % 3}" for n in range(20)],
            "month": [f"2026-0{1 + n // 8}" for n in range(20)],
            "text": [f"text {n}" for n in range(1, 21)],
            "label": ["05", "10"] * 10,
            "decision": "decided",
            "p.05": 0.7,
            "p.10": 0.3,
            "model_version": "1",
            "reason": None,
        }
    )
    after = before.copy()
    after["model_version"] = "2"
    for number, why in CHANGES.items():
        place = number - 1
        if why == "threshold":
            after.loc[place, "decision"] = "ask"
            continue
        after.loc[place, "label"] = "10" if before.loc[place, "label"] == "05" else "05"
        if why == "text":
            after.loc[place, "text"] = "=rewritten"
    return before, pd.concat([after.iloc[1:], after.iloc[:1].assign(id="new", row=99)])


def write(rows, folder, ending):
    folder.mkdir()
    file = folder / f"shop.scores.{ending}"
    if ending == "parquet":
        rows.to_parquet(file)
    elif ending == "csv":
        rows.to_csv(file, index=False)
    else:
        rows.to_json(file, orient="records", lines=True)


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_changed_rows_are_those_of_the_join(tmp_path, ending):
    before, after = make_rows()
    write(before, tmp_path / "a", "parquet")
    write(after, tmp_path / "b", ending)
    found = diff(tmp_path / "a", tmp_path / "b")
    assert (found.joined, found.only_before, found.only_after) == (19, 1, 1)
    assert {one["row"]: one["why"] for one in found.changed} == CHANGES
    joined = before.merge(after, on="id")
    is_other = joined["label_x"] != joined["label_y"]
    is_other |= joined["decision_x"] != joined["decision_y"]
    assert sum(found.count_by("why").values()) == is_other.sum() == len(found.changed)
    write_changes(found, tmp_path / "changed.csv")
    with (tmp_path / "changed.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["before"] for row in rows] == ["05", "05", "10", "05, decided"]
    assert rows[3]["after"] == "05, ask"
    assert diff(tmp_path / "a", tmp_path / "a").changed == []
    with (tmp_path / "changed.by.csv").open(newline="") as file:
        counted = list(csv.DictReader(file))
    for name in ("file", "month", "product"):
        own = [one for one in counted if one["by"] == name]
        by_hand = joined.assign(changed=is_other).groupby(f"{name}_y").changed.agg(["size", "sum"])
        assert {one["value"]: [int(one["joined"]), int(one["changed"])] for one in own} == {
            value: row.tolist() for value, row in by_hand.iterrows()
        }
        assert sum(int(one["joined"]) for one in own) == found.joined
        assert sum(int(one["changed"]) for one in own) == len(found.changed)


def test_without_ids_of_their_own_rows_join_by_file_and_number(tmp_path):
    before, after = make_rows()
    write(before.assign(id="same"), tmp_path / "a", "csv")
    write(after.assign(id="same"), tmp_path / "b", "csv")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert {one["row"] for one in found.changed} == set(CHANGES)


def test_a_folder_without_scores_is_the_users_mistake(tmp_path):
    with pytest.raises(UserError) as wrong:
        diff(tmp_path, tmp_path)
    assert str(tmp_path) in str(wrong.value)
    (tmp_path / "x.scores.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError) as wrong:
        diff(tmp_path, tmp_path)
    assert "x.scores.csv" in str(wrong.value)


@pytest.mark.parametrize("task", ["stars", "stars, given"])
def test_each_task_of_both_sides_is_joined(tmp_path, task):
    sides = []
    for rows in make_rows():
        own = ["label", "decision", "p.05", "p.10", "model_version"]
        wide = rows.rename(columns={name: f"{task}.{name}" for name in own})
        mood = rows[own].rename(columns={name: f"mood.{name}" for name in own})
        mood["mood.label"] = "calm"
        sides.append(pd.concat([wide, mood], axis=1))
    write(sides[0], tmp_path / "a", "parquet")
    write(sides[1], tmp_path / "b", "csv")
    found = diff(tmp_path / "a", tmp_path / "b")
    assert found.groups["task"] == {task: 19, "mood": 19}
    assert {one["row"]: one["why"] for one in found.changed if one["task"] == task} == CHANGES
    assert [one["row"] for one in found.changed if one["task"] == "mood"] == [9]
    write(make_rows()[0], tmp_path / "one", "csv")
    for wrong in (
        lambda: diff(tmp_path / "one", tmp_path / "b"),
        lambda: read_scores(tmp_path / "b"),
    ):
        with pytest.raises(UserError) as refused:
            wrong()
        assert "--task" in str(refused.value)


def test_two_dumps_are_compared_by_text_and_stars(tmp_path):
    rows = [
        {"id": f"r{n}", "asin": f"B{n % 2}", "unixReviewTime": 1_780_000_000 + 86_400 * 20 * n}
        | {"reviewText": f"The kettle {n} boils.", "overall": 1 + n % 5, "colour": "red"}
        for n in range(8)
    ]
    after = [dict(row) for row in rows]
    after[2]["overall"], after[3]["reviewText"], after[5]["colour"] = 5, "It broke.", "blue"
    after[4] |= {"overall": 1, "reviewText": ""}
    for name, side in (("may.jsonl", rows), ("june.jsonl", after[1:])):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in side))
    paths = tmp_path / "may.jsonl", tmp_path / "june.jsonl"
    found = diff(*paths)
    assert {one["id"]: one["why"] for one in found.changed} == {
        "r2": "label",
        "r3": "text",
        "r4": "text and label",
    }
    assert (found.joined, found.only_before, found.only_after) == (7, 1, 0)
    assert (found.changed[0]["before"], found.changed[0]["after"]) == ("3", "5")
    assert found.groups["product"] == {"B0": 3, "B1": 4}
    assert found.groups["month"].total() == 7
    assert found.changed[0]["month"] == "2026-07"
    assert {one["id"] for one in diff(*paths, label="colour").changed} == {"r3", "r4", "r5"}
    write(make_rows()[0], tmp_path / "scores", "csv")
    with pytest.raises(UserError) as refused:
        diff(tmp_path / "scores", paths[0])
    assert "may.jsonl" in str(refused.value)
