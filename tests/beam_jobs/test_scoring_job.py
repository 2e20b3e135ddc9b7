"""Scores of a dump: one row a record, in order, which joins to the input."""

import csv
import gzip
import json
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs import scoring_job
from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.model_folder.copies import load_trained, save_sketches
from amazon_electra.beam_jobs.model_folder.drift import PROFILE, Profile
from amazon_electra.beam_jobs.reading.ids import ID, add_id_column
from amazon_electra.beam_jobs.scoring import plan as scoring_plan
from tests.beam_jobs.dumps import look_at
from tests.beam_jobs.scoring.models import LABELS, VECTORS, expect, write_network
from tests.refusals import refuses


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("model"))


def score(model, output, *dump, more=()):
    """Write tables."""
    words = ["--model", str(model), "--input", *map(str, dump), "--output", str(output)]
    table = [] if "--output_format" in more else ["--output_format", "parquet"]
    return call_job(scoring_job.score, [*words, *table, *more])


def read(path):
    return pq.read_table(path).to_pylist()


def test_models_of_several_tasks_have_columns_of_their_own(model, tmp_path):
    other = write_network(tmp_path / "fault", vectors=VECTORS[:, :2], task="label:fault")
    dump = tmp_path / "dump.csv"
    dump.write_text("id,text\n1,good\n2,very bad\n3,\n")
    result = score(model, tmp_path / "one", dump)
    alone = read(tmp_path / "one" / "dump.scores.parquet")
    words = ["--input", str(dump), "--output_format", "parquet", "--model", str(model)]
    more = [str(other), "--model_version", "7", "8", "--output", str(tmp_path / "two")]
    assert call_job(scoring_job.score, [*words, *more])["scored"] == result["scored"] == 2
    rows = read(tmp_path / "two" / "dump.scores.parquet")
    names = ["label", *(f"p.{label}" for label in LABELS)]
    assert list(rows[0]) == [
        *("file", "row", "id", "text"),
        *(f"polarity.{name}" for name in (*names, "model_version")),
        *("fault.label", f"fault.p.{LABELS[0]}", f"fault.p.{LABELS[1]}", "fault.model_version"),
        "reason",
    ]
    for one, both in zip(alone, rows, strict=True):
        assert [one[name] for name in names] == [both[f"polarity.{name}"] for name in names]
        assert (both["polarity.model_version"], both["fault.model_version"]) == ("7", "8")
        assert (both["fault.label"] is None) == (both["reason"] is not None)
    with refuses(field="--model"):
        call_job(scoring_job.score, [*words, str(model), "--output", str(tmp_path / "same")])


def test_every_record_has_its_row_with_the_score_of_its_text_or_a_reason(model, tmp_path):
    texts = ["good", "very good not bad fine", "bad " * 40, "unheard of", "good"]
    lines = [json.dumps({"reviewText": text, "id": i}) for i, text in enumerate(texts)]
    empty, none = '{"reviewText": " ", "id": 8}', '{"id": 9}'
    dump = tmp_path / "dump.json"
    dump.write_text("\n".join([lines[0], '{"broken', lines[1], empty, none, *lines[2:]]) + "\n")
    result = score(model, tmp_path / "scores", dump, more=["--model_version", "7"])
    assert (result["read"], result["scored"]) == (8, 5)
    assert result["unscored"] == {"broken JSON": 1, "no text": 2}
    rows = read(tmp_path / "scores" / "dump.scores.parquet")
    assert [row["row"] for row in rows] == list(range(1, 9))
    assert {row["file"] for row in rows} == {"dump.json"}
    assert {row["model_version"] for row in rows} == {"7"}
    assert [row["id"] for row in rows] == ["0", None, "1", "8", "9", "2", "3", "4"]
    reasons = [row["reason"] for row in rows]
    assert reasons[:5] == [None, "broken JSON", None, "no text", "no text"]
    for row in rows:
        found = [row[f"p.{label}"] for label in ("negative", "neutral", "positive")]
        if row["reason"]:
            assert [row["label"], *found] == [None] * 4
        else:
            text = texts[int(row["id"])]
            np.testing.assert_allclose(found, expect(" ".join(text.split()[:16])), atol=1e-6)
            assert row["label"] == ("negative", "neutral", "positive")[int(np.argmax(found))]
    assert [path.name for path in (tmp_path / "scores").glob("*.parquet")] == [
        "dump.scores.parquet"
    ]


def write_csv(path, ids, column="order_id"):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([column, "comment", "stars"])
        writer.writerows(
            [i, 'good "thing",\nfine mail@x.org' if n % 2 else "bad", 3] for n, i in enumerate(ids)
        )
    return path


@pytest.mark.parametrize(
    ("ending", "ids"),
    [("parquet", range(100, 107)), ("csv", range(100, 107)), ("parquet", ["a-1", "007", "3"])],
)
def test_tables_join_in_pandas_in_every_format(model, tmp_path, ending, ids):
    dump = write_csv(tmp_path / "shop.csv", ids)
    more = ["--id", "order_id", "--output_format", ending]
    score(model, tmp_path / "scores", dump, more=more)
    path = tmp_path / "scores" / f"shop.scores.{ending}"
    scores = {"parquet": pd.read_parquet, "csv": pd.read_csv}[ending](path)
    own = pd.read_csv(dump, dtype={"order_id": scores["id"].dtype})
    joined = own.merge(scores, left_on="order_id", right_on="id", validate="1:1")
    assert len(joined) == len(ids) == len(scores)
    assert list(scores["row"]) == list(range(1, len(ids) + 1))
    assert list(joined["text"])[:2] == ["bad", 'good "thing", fine [email]']
    assert np.allclose(scores.filter(like="p.").sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("column", "is_found"),
    [("id", True), ("Review ID", True), ("reviewID", True), ("_id", True), ("reviewerID", False)],
)
def test_the_column_of_ids_is_found_by_its_name(tmp_path, column, is_found):
    file = add_id_column(look_at(write_csv(tmp_path / "shop.csv", [5, 6], column)), None)
    assert dict(file.layout.mapping).get(ID) == (column if is_found else None)


def test_what_is_not_there_is_a_mistake(model, tmp_path):
    dump = write_csv(tmp_path / "shop.csv", [5])
    with refuses("id", "order", "shop.csv", "comment"):
        score(model, tmp_path / "scores", dump, more=["--id", "order"])
    with refuses("model", "config.json"):
        score(tmp_path, tmp_path / "scores", dump)


def test_each_file_has_scores_of_its_name(model, tmp_path):
    for folder, name in (("a", "r.v2.csv"), ("b", "r.v2.csv"), ("b", "r.v2.tsv"), ("b", "q.txt")):
        (tmp_path / folder).mkdir(exist_ok=True)
        write_csv(tmp_path / folder / name, [1, 2])
    with zipfile.ZipFile(tmp_path / "b" / "many.zip", "w") as packed:
        packed.write(tmp_path / "a" / "r.v2.csv", "x.csv")
        packed.write(tmp_path / "a" / "r.v2.csv", "y.csv")
    result = score(model, tmp_path / "scores", tmp_path / "a", tmp_path / "b")
    names = ["many-x", "many-y", "q", "r.v2", "r.v2-2", "r.v2-3"]
    assert [file["scores"] for file in result["files"]] == [f"{n}.scores.parquet" for n in names]
    there = {path.name for path in (tmp_path / "scores").glob("*.parquet")}
    assert there == {f"{name}.scores.parquet" for name in names}
    assert read(tmp_path / "scores" / "many-y.scores.parquet")[0]["file"] == "many.zip/y.csv"
    write_csv(tmp_path / "later.csv", [1])
    score(model, tmp_path / "scores", tmp_path / "later.csv")
    assert len(list((tmp_path / "scores").glob("*.parquet"))) == 1 + len(names), (
        "earlier scores stay"
    )


def write_profile(model, answer):
    """Have the model know 200 tested texts, of which those with `answer` are its answers."""
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(["good", "bad", "fine", "very", "not"], 6)) for _ in range(400)]
    probabilities = np.array([expect(text) for text in texts[200:]])
    right = probabilities.argmax(1) if answer else np.zeros(200, int)
    labels, stars = ["negative", "neutral", "positive"], {"1": "negative", "5": "positive"}
    profile = Profile.of_texts(
        labels, texts[:200], texts[200:], probabilities, right, {}, stars=stars
    )
    (model / PROFILE).write_text(json.dumps(profile.to_json()))
    return texts[200:], [labels[i] for i in probabilities.argmax(1)]


def test_scores_say_whether_the_model_still_holds(tmp_path):
    model = write_network(tmp_path / "model")
    texts, answers = write_profile(model, answer=True)
    foreign = "la caja no llegó a tiempo nunca más"
    new = [foreign if place % 2 else text for place, text in enumerate(texts)]
    stars = [1 if answer == "negative" else 5 for answer in answers]
    pd.DataFrame({"text": texts, "stars": stars}).to_csv(tmp_path / "same.csv")
    pd.DataFrame({"text": new}).to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    fault = write_network(tmp_path / "fault", task="label:fault")
    write_profile(fault, answer=False)
    words = ["--model", str(model), str(fault), "--input", str(tmp_path / "same.csv")]
    words += [str(tmp_path / "new.jsonl"), "--output", str(tmp_path / "scores")]
    result = call_job(scoring_job.score, words)
    written = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert written["files"] == json.loads(json.dumps(result["files"]))
    of_fault = result["files"][0]["drift"]["fault"]
    assert of_fault["tested"] < 0.7 < result["files"][0]["drift"]["polarity"]["tested"]
    assert of_fault["accuracy"] is None
    drifts = {file["file"]: file["drift"]["polarity"] for file in result["files"]}
    assert drifts["same.csv"]["findings"] == []
    right = sum(answer != "neutral" for answer in answers)
    assert drifts["same.csv"]["labelled"] == 200
    assert drifts["same.csv"]["accuracy"] == right / 200
    assert 0.45 < drifts["new.jsonl"]["unknown"][0] < 0.55
    assert drifts["new.jsonl"]["findings"]
    assert drifts["new.jsonl"]["accuracy"] is None
    assert result["drift"]["polarity"]["n"] == 400


def test_labels_of_training_are_left_out_of_the_accuracy(tmp_path):
    """The model is right about reviews that it was trained on, and about no other."""
    model = write_network(tmp_path / "model")
    texts, answers = write_profile(model, answer=True)
    right = [text for text, answer in zip(texts, answers, strict=True) if answer == "positive"]
    save_sketches(right, model)
    is_trained = load_trained(str(model)).mark_copies(texts)
    pd.DataFrame({"text": texts, "stars": 5}).to_csv(tmp_path / "dump.csv")
    drift = score(model, tmp_path / "scores", tmp_path / "dump.csv")["drift"]["polarity"]
    assert drift["trained"] == is_trained.sum() >= len(right) > 0
    assert drift["labelled"] == 200 - is_trained.sum() > 100
    assert drift["accuracy"] == 0


def test_many_units_and_workers_give_the_same_rows(model, tmp_path, monkeypatch):
    records = [{"text": "good " * (n % 9) + ("" if n % 7 else "bad"), "id": n} for n in range(3000)]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "plain.jsonl").write_text(lines)
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "array.json").write_text(json.dumps(records, indent=1))
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "rows.parquet", row_group_size=700)
    monkeypatch.setattr(scoring_plan.work_units, "choose_unit_bytes", lambda files: 100_000)
    dumps = sorted(tmp_path.iterdir())
    one = score(model, tmp_path / "one", *dumps, more=["--direct_num_workers=1"])
    two = score(model, tmp_path / "two", *dumps, more=["--direct_num_workers=2"])
    assert one["units"] == two["units"] > 12
    for name in (file["scores"] for file in one["files"]):
        first, second = (tmp_path / folder / name for folder in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
        rows = read(first)
        assert (
            [int(row["id"]) for row in rows]
            == [row["row"] - 1 for row in rows]
            == list(range(3000))
        )


def test_an_interrupted_job_is_continued_by_itself_alone(model, tmp_path, monkeypatch):
    good, bad = (write_csv(tmp_path / name, [1, 2]) for name in ("good.csv", "bad.csv"))
    with monkeypatch.context() as broken:
        broken.setattr(scoring_job, "finish_scores", lambda plan: 1 / 0)
        for output in ("again", "other"):
            with pytest.raises(ZeroDivisionError):
                score(model, tmp_path / output, good)
    [counts] = (tmp_path / "again").glob("_work-*/written/*.json")
    before = counts.stat().st_mtime_ns
    with monkeypatch.context() as watching:
        watching.setattr(storage, "remove_path", lambda path: None)
        assert score(model, tmp_path / "again", good)["scored"] == 2
    assert counts.stat().st_mtime_ns == before
    assert score(model, tmp_path / "other", bad)["scored"] == 2
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == [
        *("bad.scores.parquet", "scores.json")
    ]


def test_a_text_that_a_spreadsheet_would_compute_is_marked_in_csv(model, tmp_path):
    texts = ['=HYPERLINK("http://x","good")', "good", "@bad", "-5 stars"]
    dump = tmp_path / "new.json"
    dump.write_text(
        "".join(json.dumps({"text": t, "id": f"a{i // 2}"}) + "\n" for i, t in enumerate(texts))
    )
    more = ["--output-format", "csv"]
    result = score(model, tmp_path / "scores", dump, more=more)
    rows = pd.read_csv(tmp_path / "scores" / "new.scores.csv")
    assert [text[0] for text in rows["text"]] == ["'", "g", "'", "'"]
    [warning] = result["warnings"]
    assert "id: 2 different ids in 4 rows: a0 occurs 2 times" in warning
