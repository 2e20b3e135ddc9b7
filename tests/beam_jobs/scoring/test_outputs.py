"""Copies of the input: its bytes and columns as they are, and the answers beside them."""

import csv
import gzip
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs import scoring_job
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.scoring import plan as scoring_plan
from tests.beam_jobs.reading.test_excel import write_workbook
from tests.beam_jobs.scoring.models import LABELS, VECTORS, write_network
from tests.refusals import refuses

PREDICTED, PROBABILITY = "polarity.predicted", "polarity.probability"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Its answer to a text of one word is the class of the word's largest number."""
    return write_network(tmp_path_factory.mktemp("model"))


def answer(word):
    return LABELS[VECTORS[{"good": 2, "bad": 3, "fine": 4}[word]].argmax()]


def score(model, dump, output, *more):
    words = ["--model", str(model), "--input", str(dump), "--output", str(output)]
    [file] = call_job(scoring_job.score, [*words, *more])["files"]
    return output / file["scores"]


CELLS = [
    ("good", "007", "1.50", 'a "quoted", cell'),
    ("bad", "", " x ", "two\nlines"),
    ("fine", "1e5", "=1+1", "é"),
    ("", "9", "no text", ""),
]


@pytest.mark.parametrize(
    ("ending", "delimiter", "line_end", "encoding", "packed"),
    [
        ("csv", ",", "\n", "utf-8", False),
        ("csv", ",", "\r\n", "utf-8-sig", True),
        ("csv", ";", "\n", "cp1252", False),
        ("tsv", "\t", "\n", "utf-8", False),
    ],
)
def test_csv_keeps_its_bytes(
    model, tmp_path, monkeypatch, ending, delimiter, line_end, encoding, packed
):
    monkeypatch.setattr(scoring_plan.work_units, "choose_unit_bytes", lambda _: 400)
    dump = tmp_path / "new.csv"
    with open(dump, "w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=line_end)
        writer.writerow(["text", "order", "price", "note"])
        writer.writerows(CELLS * 5)
    content = dump.read_bytes()
    given = dump
    if packed:
        given = tmp_path / "new.csv.gz"
        given.write_bytes(gzip.compress(content))
    more = ["--encoding", encoding] if encoding == "cp1252" else []
    path = score(model, given, tmp_path / "scores", *more)
    assert path.name == f"new.scores.{ending}"
    with open(path, newline="", encoding=encoding) as file:
        rows = list(csv.reader(file, delimiter=delimiter))
    assert rows[0] == ["text", "order", "price", "note", PREDICTED, PROBABILITY]
    assert [tuple(row[:4]) for row in rows[1:]] == CELLS * 5
    assert [row[4] for row in rows[1:]] == [answer(c[0]) if c[0] else "" for c in CELLS * 5]
    assert all(0 < float(row[5]) <= 1 for row in rows[1:] if row[4])
    added = [row[4:] for row in rows]
    copied, cut = path.read_bytes(), b""
    for one in added:  # without what was added the bytes are the input's
        cells = "".join(delimiter + cell for cell in one).encode(encoding.removesuffix("-sig"))
        before, _, copied = copied.partition(cells + line_end.encode())
        cut += before + line_end.encode()
    assert cut + copied == content


def test_lines_that_are_no_record_stay_where_they_are(model, tmp_path):
    """Too few cells, too many, a blank line, the header again, and an end without a line end."""
    lines = ["text,order", "good,1", "alone", "bad,2,3", "", "text,order", 'fine,"4', '5"', "bad,6"]
    dump = tmp_path / "new.csv"
    dump.write_text("\n".join(lines))
    copied = score(model, dump, tmp_path / "scores").read_text().split("\n")
    assert [one[: len(line)] for one, line in zip(copied, lines, strict=True)] == lines
    added = [one[len(line) :] for one, line in zip(copied, lines, strict=True)]
    names = f",{PREDICTED},{PROBABILITY}"
    assert [added[i] for i in (0, 2, 3, 4, 5, 6)] == [names, ",,", ",,", "", names, ""]
    assert [added[i].split(",")[1] for i in (1, 7, 8)] == [
        answer(w) for w in ("good", "fine", "bad")
    ]


def test_json_lines_keep_their_bytes(model, tmp_path):
    lines = [
        '{"text": "good", "n": 1.50, "big": 123456789012345678901234567890}',
        '{"broken',
        '{"text":"bad", "deep": {"a": [1, {"b": null}]} }',
        '{"n": 7}',
    ]
    dump = tmp_path / "new.jsonl"
    dump.write_text("\n".join(lines) + "\n")
    copied = score(model, dump, tmp_path / "scores").read_text().splitlines()
    assert copied[1] == lines[1]
    for place, word in ((0, "good"), (2, "bad"), (3, None)):
        assert copied[place].startswith(lines[place].rstrip("} ").rstrip())
        found, given = json.loads(copied[place]), json.loads(lines[place])
        assert list(found) == [*given, PREDICTED, PROBABILITY]
        assert {name: found[name] for name in given} == given
        assert found[PREDICTED] == (word and answer(word))


def test_parquet_keeps_its_columns_and_types(model, tmp_path, monkeypatch):
    monkeypatch.setattr(scoring_plan.work_units, "choose_unit_bytes", lambda _: 8)
    words = ["good", "bad", "fine", None, "bad"]
    table = pa.table(
        {
            "when": pa.array([1, 2, 3, 4, 5], pa.timestamp("ms", "UTC")),
            "text": pa.array(words).dictionary_encode(),
            "tags": pa.array([["a"], [], None, ["b", "c"], []]),
        }
    )
    pq.write_table(table, tmp_path / "new.parquet", row_group_size=2)
    copied = pq.read_table(score(model, tmp_path / "new.parquet", tmp_path / "scores"))
    assert copied.column_names == [*table.column_names, PREDICTED, PROBABILITY]
    assert copied.select(table.column_names).to_pylist() == table.to_pylist()
    assert copied.schema.field("when").type == table.schema.field("when").type
    assert copied[PREDICTED].to_pylist() == [w and answer(w) for w in words]


@pytest.mark.parametrize("ending", ["json", "xlsx"])
def test_other_formats_give_csv(model, tmp_path, ending):
    dump, rows = tmp_path / f"new.{ending}", pd.DataFrame({"n": [1, 2], "text": ["good", "bad"]})
    if ending == "json":
        dump.write_text(json.dumps(rows.to_dict("records"), indent=1))
    else:
        write_workbook(dump, new=[[*rows], *rows.values.tolist()])
    found = pd.read_csv(score(model, dump, tmp_path / "scores"))
    assert list(found) == ["n", "text", PREDICTED, PROBABILITY]
    assert found[["n", "text"]].equals(rows)
    assert list(found[PREDICTED]) == [answer("good"), answer("bad")]


def test_a_review_in_a_list_has_a_row(model, tmp_path):
    dump = tmp_path / "new.jsonl"
    reviews = [{"text": "good", "n": 1}, {"text": "bad", "n": 2}]
    products = [{"asin": "B1", "reviews": reviews}, {"asin": "B2", "reviews": reviews[:1]}]
    dump.write_text("".join(json.dumps(product) + "\n" for product in products))
    more = ["--columns", "text=reviews[].text"]
    found = pd.read_csv(score(model, dump, tmp_path / "scores", *more))
    assert list(found["asin"]) == ["B1", "B1", "B2"]
    assert list(found["reviews[].text"]) == ["good", "bad", "good"]
    assert "reviews" not in found


def test_a_column_of_an_answer_that_is_there_already_is_refused(model, tmp_path):
    dump = tmp_path / "new.csv"
    dump.write_text(f"text,{PREDICTED}\ngood,x\n")
    with refuses(PREDICTED):
        score(model, dump, tmp_path / "scores")
    assert not (tmp_path / "scores").exists()
