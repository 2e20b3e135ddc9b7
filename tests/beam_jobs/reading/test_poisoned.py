"""Records made to break a parser: never a crash, never a lost count."""

import io
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amazon_electra.beam_jobs.reading import delimited, detection, fields
from amazon_electra.beam_jobs.reading.format import Layout
from amazon_electra.beam_jobs.reading.formats import FORMATS
from amazon_electra.beam_jobs.reading.json_records import read_json_objects
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from amazon_electra.beam_jobs.reading.text_lines import LabelledLines
from tests.beam_jobs.dumps import rejects_of, review, run_job, texts_in, write_lines

DEEP = "[" * 100_000 + "]" * 100_000
POISON: dict[str, tuple[str | bytes, str]] = {
    "deep nesting": ('{"reviewText": ' + DEEP + "}", "nested too deeply"),
    "long line": (b'{"reviewText": "' + b"x" * 20_000_000 + b'"}', "record too long"),
    "long line of braces": (b"{" * 17_000_000, "record too long"),
    "not an object": ("[1, 2]", "not an object"),
    "cut off": ('{"reviewText": "abc', "broken JSON"),
    "NUL bytes only": (b"\x00\x00\x00", "broken JSON"),
    "huge integer": ('{"reviewText": "ok", "overall": ' + "9" * 5000 + "}", "broken JSON"),
    "text is a list": ('{"reviewText": ["a"]}', "text is not a string"),
    "text is a number": ('{"reviewText": 7}', "text is not a string"),
    "only markup": ('{"reviewText": "<br />&nbsp;"}', "empty text"),
    "very long text": ('{"reviewText": "' + "a b " * 10_000 + '"}', "too long"),
}
HARMLESS = {
    "identifier is deeply nested": (
        '{"reviewText": "a deep item", "asin": ' + "[" * 1_010 + "]" * 1_010 + "}"
    ),
    "identifier is an object": '{"reviewText": "an object as item", "asin": {"a": 1, "b": 2}}',
    "NaN rating": '{"reviewText": "nan rating", "overall": NaN}',
    "lone surrogate": '{"reviewText": "lone \\ud83d surrogate", "reviewerID": "\\ud800"}',
    "NUL in the text": '{"reviewText": "nul \\u0000 inside"}',
    "stars are a long text": json.dumps({"reviewText": "long stars", "overall": "5" * 100_000}),
    "numbers as strings": (
        '{"reviewText": "numbers as strings", "overall": "5", "unixReviewTime": "1"}'
    ),
}


def test_every_poisoned_record_is_counted_by_its_reason(tmp_path):
    records = [
        review(0),
        *[raw for raw, _ in POISON.values()],
        b"",
        b" \r",
        *HARMLESS.values(),
        review(1),
    ]
    result = run_job(tmp_path / "corpus", "--input", write_lines(tmp_path / "d.json", records))
    assert result["read"] == 2 + len(POISON) + len(HARMLESS)
    assert result["dropped"] == dict(Counter(reason for _, reason in POISON.values()))
    assert {"nan rating", "lone surrogate", "nul inside"} <= set(texts_in(tmp_path / "corpus"))
    lines = {reject["line"]: reject["reason"] for reject in rejects_of(tmp_path / "corpus")}
    expected = {2 + i: reason for i, (_, reason) in enumerate(POISON.values())}
    unread = {"text is not a string", "no text", "empty text", "too long"}
    assert lines == {line: reason for line, reason in expected.items() if reason not in unread}


OTHERS = {
    "array.json": (
        ['[{"text": "good one"},', '{"text": "broken, "a": 1},', '{"text": "good two"}]'],
        {"broken JSON": 1},
    ),
    "d.csv": (
        ["text,stars", "good one,5", "a,b,c,d", '"never ends', "good two,5"],
        {"more columns": 1, "broken CSV": 1},
    ),
    "d.tsv": (
        ["marketplace\ttext\tn", "US\tgood one\t1", "US", "US\tgood two\t1"],
        {"fewer columns": 1},
    ),
    "python.json": (
        ["{'text': 'good one'}", "{'text': __import__('os')}", "('a',)", "{'text': 'good two'}"],
        {"broken Python literal": 1, "not an object": 1},
    ),
    "snap.txt": (
        ["review/text: good one", "", "no key here", "", "review/text: good two"],
        {"no key": 1},
    ),
    "ft.txt": (["__label__1 good one", "no label", "__label__2 good two"], {"no label": 1}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_poison_in_other_formats(tmp_path, name):
    lines, dropped = OTHERS[name]
    result = run_job(tmp_path / "corpus", "--input", write_lines(tmp_path / name, lines))
    assert result["dropped"] == dropped
    assert set(texts_in(tmp_path / "corpus")) == {"good one", "good two"}


def read_all(
    content: bytes, layout: Layout, header: bool = True
) -> tuple[list[dict[str, Any]], list[Reject], Tally]:
    """Return the records of a file, what is rejected, and its tally."""
    tally = Tally()
    items = list(detection.read_records(io.BytesIO(content), layout, tally, header))
    records = [item[1] for item in items if not isinstance(item, Reject)]
    return records, [item for item in items if isinstance(item, Reject)], tally


FIELDS = st.sampled_from(["reviewText", "overall", "asin", "x"])
RECORD = st.dictionaries(FIELDS, st.none() | st.floats() | st.text() | st.lists(st.integers()))
STARTS = [b"review/text: words", b"", b"text,stars", b'"open', b"__label__1 T: x", b"\xff\xfe"]
LINE = st.one_of(
    RECORD.map(lambda r: json.dumps(r).encode()),
    RECORD.map(lambda r: repr(r).encode("utf-8", "replace")),
    st.binary(max_size=60),
    st.text("{}[]\",:\\'\n\r\t abc/1__label__", max_size=60).map(str.encode),
    st.sampled_from(STARTS),
)
FOUND = {"delimited": delimited.Dialect(("text", "stars")), "text": True}
FOUND["fasttext"] = LabelledLines((("__label__1", False),), True)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(
    content=st.lists(LINE, max_size=12).map(b"\n".join),
    name=st.sampled_from([n for n in FORMATS if n not in ("parquet", "excel")]),
)
def test_readers_never_crash_on_any_bytes(content, name):
    found = Layout(name, found=FOUND.get(name), max_record_bytes=100)
    read = fields.make_review_reader({"text": "reviewText", "stars": "overall"}, Counter())
    records, rejects, tally = read_all(content, found, header=False)
    for record in records:
        read(record)
    for reject in rejects:
        assert reject.reason
        assert 1 <= reject.line <= content.count(b"\n") + 1
    assert tally.lines <= content.count(b"\n") + 1


def middle(record: str) -> int:
    return record.index("arrived") + 3


HURTS: dict[str, Callable[[str], str]] = {
    "a quote too many": lambda r: r[: middle(r)] + '"' + r[middle(r) :],
    "two quotes too many": lambda r: r[: middle(r)] + '"x" ' + r[middle(r) :],
    "a quote too few": lambda r: r.replace('"verified', "verified"),
    "a backslash before the last quote": lambda r: r.replace('"}', '\\"}').replace(
        '"\n}', '\\"\n}'
    ),
    "no closing brace": lambda r: r.rstrip("}\n "),
    "a list that does not end": lambda r: r.replace("]", ""),
    "a bracket that closes nothing": lambda r: r.replace("]", "]]"),
    "cut off in a text": lambda r: r[: middle(r)],
    "cut off in a key": lambda r: r[: r.index("erall")],
    "cut off in a list": lambda r: r[: r.index("]")],
}


@pytest.mark.parametrize("form", ["array", "pretty", "objects"])
@pytest.mark.parametrize("how", HURTS)
def test_a_broken_object_costs_no_other(how, form):
    """One reject for each, which names its line; all other objects are read."""
    fields_of = [
        review(i, images=[{"a": "b"}], style={"x": f"{i}"}, summary="end") for i in range(300)
    ]
    records = [json.dumps(r, indent=1 if form == "pretty" else None) for r in fields_of]
    broken = (0, 100, 101, 299)
    for i in broken:
        records[i] = HURTS[how](records[i])
    start, between, end = ("", "\n", "\n") if form == "objects" else ("[", ",\n", "]")
    content = (start + between.join(records) + end).encode()
    found, rejects, _ = read_all(content, Layout("json_objects"))
    assert found == [r for i, r in enumerate(fields_of) if i not in broken]
    starts = [1 + sum(record.count("\n") + 1 for record in records[:i]) for i in broken]
    assert [reject.line for reject in rejects][:4] == starts


ROWS = 400


def rows_with(delimiter: str, quoted: bool, *others: tuple[int, str]) -> bytes:
    mark = '"' if quoted else ""
    rows = [
        f"r{i}{delimiter}{i % 5 + 1}{delimiter}{mark}text number {i}, it is fine{mark}"
        for i in range(ROWS)
    ]
    rows = rows if quoted or delimiter != "," else [row.replace(", it", " it") for row in rows]
    for number, row in others:
        rows[number] = row.replace("|", delimiter)
    return "\n".join([delimiter.join(["id", "stars", "text"]), *rows]).encode() + b"\n"


@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("places", [[0], [200], [200, 201], [200, 330], [398], [399]])
def test_a_quote_that_never_ends_costs_its_own_record_only(delimiter, quoted, places):
    content = rows_with(delimiter, quoted, *((i, 'r|3|"this one never ends') for i in places))
    found = delimited.detect_dialect(
        b'id,stars,text\n1,5,"a"\n'.replace(b",", delimiter.encode()), Layout("delimited")
    )
    records, rejects, tally = read_all(content, found)
    ids = [record["id"] for record in records]
    assert ids == [f"r{i}" for i in range(ROWS) if i not in places]
    assert [(one.line, one.reason) for one in rejects] == [(i + 2, "broken CSV") for i in places]
    assert tally.lines == ROWS + 1


BYTES = 400_000
REPEATED = (  # after a beginning
    *((b"{", b"\n"), (b'{"a": 1,', b" "), (b"{", b"\n \t"), (b"", b"{"), (b"", b"{[")),
    *((b"", b'{"'), (b'{"a": "', b"\\"), (b'{"a"', b","), (b'{"a": [', b'{"b": 1},\n')),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("start", "pattern"), REPEATED)
def test_objects_take_no_longer_than_their_length(start, pattern):
    content = start + pattern * (BYTES // len(pattern) // 4)
    for _ in read_json_objects(io.BytesIO(content), Layout("json_objects"), Tally()):
        pass
