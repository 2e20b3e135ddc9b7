"""Two folders of scores: the changed rows are those of a join by hand, with their cause."""

import csv

import pandas as pd
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.scoring.difference import diff, write_changes

CHANGES = {3: "text", 5: "model", 8: "model", 9: "threshold"}


def make_rows():
    """Return scores before and after; rows 3, 5, 8 and 9 have another answer."""
    before = pd.DataFrame(
        {
            "file": "shop.csv",
            "row": range(1, 21),
            "id": [f"0{n}" for n in range(1, 21)],
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


def test_scores_of_several_tasks_are_refused_by_name(tmp_path):
    before, _ = make_rows()
    write(before.rename(columns={"label": "stars.label"}), tmp_path / "scores", "parquet")
    with pytest.raises(UserError) as refused:
        diff(tmp_path / "scores", tmp_path / "scores")
    assert "shop.scores.parquet" in str(refused.value)
    assert "--task stars" in str(refused.value)
