"""Evaluation files of each form are streamed; a JSON document of many lines is held as a whole."""

import csv
import gzip
import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.core.limits import Limits
from amazon_electra.beam_jobs.deduplication.evaluation_texts import (
    list_forms,
    read_evaluation_texts,
)
from tests.refusals import refuses

TEXT = "so many words of a review that nobody has to read " * 40


def rows(form, n):
    texts = [f"{i} {TEXT}" for i in range(n)]
    if form == "jsonl":
        return "".join(json.dumps({"deep": [text]}) + "\n" for text in texts)
    if form == "array":
        return "[\n" + ",\n".join(json.dumps({"deep": [text]}) for text in texts) + "\n]\n"
    if form == "fasttext":
        return "".join(f"__label__1 {text}\n" for text in texts)
    if form == "review":
        return "".join(
            f"<review>\n<review_text>\n{text}\n</review_text>\n</review>\n" for text in texts
        )
    separator = {"tsv": "\t", "csv": ",", "txt": " "}[form]
    return f"id{separator}text\n" + "".join(
        f"{i}{separator}{text}\n" for i, text in enumerate(texts)
    )


@pytest.mark.parametrize(
    ("form", "packed"),
    [*((f, False) for f in ("jsonl", "array", "fasttext", "review", "tsv", "csv")), ("txt", True)],
)
def test_a_long_file_takes_little_memory(tmp_path, form, packed):
    content = rows(form, 3000).encode()
    path = tmp_path / f"test.{form}"
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    tracemalloc.start()
    found = sum(TEXT.strip() in text for text in read_evaluation_texts(str(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found >= 3000
    assert peak < len(content) / 1.5


CONLL = """-DOCSTART- -X- -X- O

SOCCER NN B-NP O
- : O O
JAPAN NNP B-NP B-LOC
WIN VB B-VP O

China NNP I-NP I-LOC
lost VBD B-VP O
narrowly RB B-ADVP O
"""
SENTENCES = ["SOCCER - JAPAN WIN", "China lost narrowly"]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (json.dumps({"data": [{"a": "three\nwords of"}]}, indent=2), ["three\nwords of"]),
        ('{"a": "one two three"}\n{"a": "4 5 6\n[]\n', ["one two three", '{"a": "4 5 6']),
        ("one two\nnow one more\n", ["now one more"]),  # the report says "of three words or more"
        *((CONLL.replace(" ", separator), SENTENCES) for separator in " \t"),
        ("said,by\nGreat taste now,so so good\n", ["Great taste now", "so so good"]),
    ],
    ids=["document", "broken line", "short", "spaces", "tabs", "CSV"],
)
def test_the_texts_of_a_file(tmp_path, content, texts):
    (tmp_path / "test").write_text(content)
    found = list(read_evaluation_texts(str(tmp_path / "test")))
    assert [text for text in found if "," not in text] == texts


def test_a_quote_that_is_not_closed_hides_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "amazon_electra.beam_jobs.deduplication.evaluation_texts.MAX_FIELD_CHARACTERS", 200
    )
    limit = csv.field_size_limit()
    broken = 'id{0}text\n1{0}"one two three\n' + "".join(
        f"{i}{{0}}four five six {i}\n" for i in range(30)
    )
    (tmp_path / "test.tsv").write_text(broken.format("\t"))
    assert {f"four five six {i}" for i in range(30)} <= set(
        read_evaluation_texts(str(tmp_path / "test.tsv"))
    )
    (tmp_path / "test.csv").write_text(broken.format(","))
    with refuses("test.csv", "line"):
        list(read_evaluation_texts(str(tmp_path / "test.csv")))
    assert csv.field_size_limit() == limit  # others in this process read with it


NESTED = pa.struct([("text", pa.list_(pa.string())), ("start", pa.list_(pa.int32()))])
TEXTS_BY_KEY = pa.map_(pa.string(), pa.string())


def test_a_parquet_file_that_expands_too_far_is_refused(tmp_path):
    path = tmp_path / "test.parquet"
    pq.write_table(pa.table({"answers": ["a b " * 25_000_000]}), path, compression="zstd")
    with refuses("withhold", "test.parquet", "200"):
        list(read_evaluation_texts(str(path)))
    long = Limits(max_record_bytes=1_000, max_expansion=0)
    with refuses("test.parquet"):
        list(read_evaluation_texts(str(path), long))


def test_the_texts_of_lists_and_structures_in_parquet_are_read(tmp_path):
    path = tmp_path / "test.parquet"
    texts = pa.array([{"text": ["of three words", "word"], "start": [1, 2]}, None] * 3, NESTED)
    keys = pa.array([[("key", "one of the values")], None] * 3, TEXTS_BY_KEY)
    pq.write_table(pa.table({"id": range(6), "answers": texts, "more": keys}), path)
    assert list(read_evaluation_texts(str(path))) == ["of three words", "one of the values"] * 3
    path.write_bytes(path.read_bytes()[:-9])
    with refuses("withhold", "test.parquet"):
        list(read_evaluation_texts(str(path)))


def test_a_text_is_held_out_with_and_without_its_personal_data():
    plain, masked = sorted(list_forms("Mail me@example.com  for info"), key=lambda t: "@" not in t)
    assert plain == "Mail me@example.com for info"
    assert "example" not in masked
    assert list_forms(" \n ") == set()
    assert list_forms("fine by me") == {"fine by me"}
