"""What is written beside a model: the list of doubtful labels, joined to the user's records."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amazon_electra.model.arms.out_of_fold import OutOfFold
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.questions.of_model import answer_questions
from amazon_electra.model.report.owner import Owner, list_short_answers
from tests.model.questions.test_wrong_labels import simulate
from tests.model.report.evaluations import render, write_cells

TASK = find_task("label:mood", labels=("bad", "fine", "good"))


def write_corpus(folder, ids):
    """Write what the list is joined with; the third text looks like a formula."""
    rows = [
        {
            "review_id": bytes.fromhex(one),
            "file": "shop.csv",
            "row": place + 2,
            "id": f"x{place}",
            "split": "test" if place >= 400 else "train",
            "month": f"2026-0{1 + place % 5}",
            "stars": 2 if place % 20 == 0 else 4,
            "sentences": [
                "=HYPERLINK(1)" if place == 2 else f"Text {place}.",
                "It ended too early.",
            ],
        }
        for place, one in enumerate(ids)
    ]
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "corpus-0000000-00000.parquet")
    entry = {"file": "shop.csv", "row": 9_000, "id": "both", "column": "mood"}
    entry |= {"labels": ["bad", "good"], "text": "Both."}
    (folder / "contradictions").mkdir()
    other = json.dumps(entry | {"column": "colour"})
    (folder / "contradictions" / "0.jsonl").write_text(f"{json.dumps(entry)}\n{other}\n")
    return folder


def make_answers(ids, labels, probabilities):
    return OutOfFold(ids, labels, np.log(probabilities), np.arange(len(ids)) % 5)


def test_doubtful_labels_are_joined_to_the_records(tmp_path):
    probabilities, labels, flipped = simulate(0, 600, 30)
    ids = [f"{place:032x}" for place in range(600)]
    probabilities[2] = [0.9995, 0.0003, 0.0002]
    labels[2] = 1
    data = write_corpus(tmp_path / "corpus", ids)
    held_out, test = (
        make_answers(ids[part], labels[part], probabilities[part])
        for part in (slice(400), slice(300, None))
    )
    own = TASK, data, tmp_path, lambda texts: np.tile([0.0, 0.02, 0.98], (len(texts), 1))
    found = answer_questions(held_out, test, *own, 0.9)
    rows = read_csv(tmp_path / "suspicious.csv")
    assert found["wrong_labels"]["listed"] == len(rows)
    assert {row["id"] for row in rows[:35]} >= {f"x{place}" for place in sorted(flipped)[:5]}
    place_of = {row["id"]: place for place, row in enumerate(rows)}
    assert place_of["x2"] < 31
    suspicious = rows[place_of["x2"]]
    assert (suspicious["file"], suspicious["row"]) == ("shop.csv", "4")
    assert (suspicious["given"], suspicious["suggested"]) == ("fine", "bad")
    assert suspicious["text"] == "'=HYPERLINK(1) It ended too early."
    both = rows[place_of["both"]]
    assert (both["row"], both["given"], both["suggested"]) == ("9000", "bad and good", "good")
    assert both["contradicted"] == "yes"
    confidences = [float(row["confidence"]) for row in rows]
    assert confidences[0] > 0.99 > confidences[-1]

    assert found["wrong_labels"]["n"] == 600
    assert found["giveaway"] is None
    asked = found["trust"]["asked"]
    assert (asked["target"], asked["n"]) == (0.9, 400)  # more than test has
    sliced = {(one["field"], one["value"]) for one in found["slices"]}
    assert ("month", "2026-03") in sliced
    assert not {field for field, _ in sliced} & {"class", "stars"}
    assert not any(field == "file" for field, _ in sliced), "there is one"
    found["slices"][0]["is_weak"] = True
    (tmp_path / "results.json").write_text(json.dumps({"task": "t", "questions": found}))
    cells = write_cells(tmp_path, {"bert": 0.8}, seeds=[0])
    _, text = render(tmp_path, cells, models=["."])
    for title in ("Which labels look wrong?", "Where can it be trusted?", "Where is it weak?"):
        assert f"## {title}" in text
    shown = [line for line in text.splitlines() if line.startswith("| shop.csv | ")]
    assert len(shown) == 10
    assert shown[0].startswith(f"| shop.csv | {rows[0]['row']} | {rows[0]['id']} |")


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_examples_of_no_corpus_are_listed_by_their_id(tmp_path):
    """Where no label is called wrong these are one in a hundred, and all errors are kept apart."""
    probabilities, labels, _ = simulate(1, 300, 0, strength=2.5)
    ids = [f"line {place}" for place in range(300)]
    held_out = make_answers(ids, labels, probabilities)
    answer_questions(held_out, None, TASK, tmp_path / "glue.tsv", tmp_path, np.asarray)
    rows, errors = read_csv(tmp_path / "suspicious.csv"), read_csv(tmp_path / "errors.csv")
    assert rows[0]["id"].startswith("line ")
    assert rows[0]["file"] == ""
    assert rows == errors[:3]
    assert len(errors) == (probabilities.argmax(1) != labels).sum() > 10


def test_a_mark_of_the_dump_is_named_first(tmp_path):
    probabilities, _, _ = simulate(2, 300, 0)
    labels = probabilities.argmax(1)
    ids = [f"{place:032x}" for place in range(300)]
    data = write_corpus(tmp_path / "corpus", ids)
    rows = pq.read_table(data / "corpus-0000000-00000.parquet").to_pylist()
    for row, label in zip(rows, labels.tolist(), strict=True):
        row["sentences"] = ["It came.", f"List {'abc'[label]}."]
    pq.write_table(pa.Table.from_pylist(rows), data / "corpus-0000000-00000.parquet")
    held_out = make_answers(ids[:40], labels[:40], probabilities[:40])
    test = make_answers(ids, labels, probabilities)
    own = TASK, data, tmp_path, lambda texts: np.full((len(texts), 3), 1 / 3)
    found = answer_questions(held_out, test, *own, 0.9)
    assert found["giveaway"]["accuracy"] > 0.9
    assert found["trust"]["asked"]["n"] == 300
    (tmp_path / "results.json").write_text(json.dumps({"task": "t", "questions": found}))
    assert Owner.read(tmp_path).found["giveaway"] == found["giveaway"]
    assert [name for name, _ in list_short_answers(tmp_path)] == ["giveaway", "labels", "trust"]
