"""Columns of the user's own classes, from the dump to the examples of a task."""

import json
from collections import Counter
from decimal import Decimal

import pytest

from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.fields import parse_label
from amazon_electra.model.finetuning.examples import SPLITS, Sampling
from amazon_electra.model.finetuning.tasks import find_task
from amazon_electra.model.finetuning.tasks.corpus import locate_reviews
from tests.beam_jobs.dumps import review, rows_of, run_job, write_lines
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("value", "label"),
    [
        *((1, "1"), (1.0, "1"), ("1", "1"), (" 1.0 ", "1"), (Decimal("1.00"), "1"), (1.5, "1.5")),
        *((True, "true"), ("True", "true"), ("FALSE", "false"), ("  too small ", "too small")),
        *(("", None), (None, None), (float("nan"), None), (["a"], None), ({"a": 1}, None)),
        ("x" * 201, None),
    ],
)
def test_a_class_is_one_however_it_is_written(value, label):
    assert parse_label(value) == label


REASONS = ("too small", "broken", None, "late")


def write_dump(folder, count=400):
    records = [review(i, why=REASONS[i % 4], again=bool(i % 3)) for i in range(count)]
    records += [review(count + i, why="eaten") for i in range(3)]
    return write_lines(folder / "dump.json", records)


def test_labels_of_the_dump_are_tasks_of_the_corpus(tmp_path):
    dump = write_dump(tmp_path)
    result = run_job(tmp_path / "corpus", "--input", dump, "--labels", "why", "--labels", "again")
    why = result["labels"]["why"]
    assert why["classes"] == ["broken", "late", "too small"]
    assert why["left_out"] == {"values": 1, "most_frequent": {"eaten": pytest.approx(3, abs=2)}}
    assert any("label why: left out" in told and "eaten" in told for told in result["warnings"])
    assert result["labels"]["again"]["classes"] == ["false", "true"]
    rows = {row["review_id"].hex(): row for row in rows_of(tmp_path / "corpus")}
    assert sum(row["label.why"] is None for row in rows.values()) == 100
    task, read = find_task("label:why", tmp_path / "corpus"), 0
    assert task.labels == ("broken", "late", "too small")
    for split in SPLITS:
        for example in task.read(tmp_path / "corpus", split, Sampling(), Counter()):
            assert rows[example.id]["label.why"] == task.labels[example.label]
            read += 1
    assert read == 300
    balanced = task.read(tmp_path / "corpus", "train", Sampling(30, 0, balanced=True), Counter())
    assert Counter(e.label for e in balanced) == {0: 10, 1: 10, 2: 10}


def test_a_column_without_classes_is_told(tmp_path, monkeypatch):
    dump = write_dump(tmp_path)
    result = run_job(tmp_path / "corpus", "--input", dump, "--labels", "reviewerID")
    assert any("0 values have 10 reviews to train on" in told for told in result["warnings"])
    with refuses("reviewerID"):
        find_task("label:reviewerID", tmp_path / "corpus")
    with refuses("why", "reviewerID"):
        find_task("label:why", tmp_path / "corpus")
    with refuses("label", "asin"):
        run_job(tmp_path / "none", "--input", dump, "--labels", "because")
    monkeypatch.setattr("amazon_electra.beam_jobs.corpus.prepare.MAX_VALUES", 100)
    with refuses("labels", "reviewerID"):
        run_job(tmp_path / "many", "--input", dump, "--labels", "reviewerID")


def test_rows_of_a_corpus_join_with_the_dump(tmp_path, monkeypatch):
    monkeypatch.setattr(work_units, "choose_unit_bytes", lambda total: 600)
    lines = [
        json.dumps({"id": f"x{n}", "text": f"Text number {n} is here.", "why": "ab"[n % 2]})
        for n in range(40)
    ]
    lines[7] = '{"broken": '
    lines.append(json.dumps({"id": "copy", "text": "Text number 3 is here.", "why": "a"}))
    dump = tmp_path / "shop.jsonl"
    dump.write_text("\n".join(lines) + "\n")
    run_job(tmp_path / "corpus", "--input", dump, "--labels", "why")
    rows = rows_of(tmp_path / "corpus")
    assert len(rows) == 39
    assert len(list((tmp_path / "corpus").glob("*.parquet"))) > 2  # units of the file
    for row in rows:
        record = json.loads(lines[row["row"] - 1])
        assert (row["file"], row["id"]) == ("shop.jsonl", record["id"])
        assert " ".join(row["sentences"]) == record["text"]
    ids = [row["review_id"].hex() for row in rows]
    found = locate_reviews(tmp_path / "corpus", [ids[5], "0" * 32, "other"])
    assert {*found} == {ids[5]}
    assert all(found[ids[5]][name] == rows[5][name] for name in ("file", "row", "id"))
    [path] = (tmp_path / "corpus" / "contradictions").iterdir()
    [found] = [json.loads(line) for line in path.read_text().splitlines()]
    assert (found["row"], found["id"]) in [(4, "x3"), (41, "copy")]
    assert (found["column"], found["labels"]) == ("why", ["a", "b"])


def test_steps_of_a_scale_are_measured_as_such(tmp_path):
    steps = ("poor", "fair", "good")
    records = [review(i, f"kettle {i} boils") | {"mood": steps[i % 3]} for i in range(300)]
    dump = write_lines(tmp_path / "d.json", records)
    run_job(tmp_path / "corpus", "--input", dump, "--labels", "mood")
    task = find_task("label:mood", tmp_path / "corpus")
    assert task.labels == steps
    assert {"mae", "within_one", "kappa"} < set(task.metrics)
    assert "mae" not in find_task("polarity").metrics


def test_a_file_without_a_usable_review_has_no_labels(tmp_path):
    write_lines(tmp_path / "a.json", [review(i, why="ab"[i % 2]) for i in range(40)])
    write_lines(tmp_path / "b.json", [review(i, "", why="a") for i in range(3)])
    more = ["--labels", "why", "--near-duplicates", "0.8"]
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "*.json", *more)
    assert (result["kept"], result["dropped"]) == (40, {"no text": 3})
