"""Exports whose first look deceives: what is a text, a label, a header and a record in them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.labels.stars import parse_rating
from amazon_electra.beam_jobs.labels.values import decide_values, fold
from amazon_electra.beam_jobs.reading.delimited import DESCRIPTION
from tests.beam_jobs.dumps import look_at, read_as_scored, rejects_of, run_job, text_of, write_lines
from tests.refusals import refuses

TEXTS = [text_of(i) for i in range(60)]


def write_csv(path, header, rows):
    quoted = [",".join(f'"{cell}"' if " " in str(cell) else str(cell) for cell in r) for r in rows]
    path.write_text("\n".join([header, *quoted]) + "\n")
    return path


def test_the_title_of_a_book_is_none_of_its_review(tmp_path):
    rows = [[f"Title {i}", "4.1", i % 5 + 1, TEXTS[i] if i % 2 else ""] for i in range(60)]
    dump = write_csv(tmp_path / "d.csv", "Title,Average Rating,My Rating,My Review", rows)
    assert dict(look_at(dump).layout.mapping) == {"text": "My Review", "stars": "My Rating"}
    assert run_job(tmp_path / "corpus", "--input", dump)["dropped"] == {"no text": 30}


@pytest.mark.parametrize("name", ["reviews_list", "reviews"])
@pytest.mark.parametrize("columns", ["text", ""])
def test_a_list_in_a_cell_is_no_text(tmp_path, name, columns):
    cells = [json.dumps([["Rated 4.0", text], ["Rated 5.0", text]]) for text in TEXTS]
    dump = write_lines(tmp_path / "d.json", [{"rate": 4.1, name: cell} for cell in cells])
    with refuses("d.json", f"{name}"):
        look_at(dump, columns=f"text={name}" if columns else None)


FEED = [
    {"title": {"label": "The app"}, "summary": {"label": "An app to keep lists"}},
    *(
        {
            "title": {"label": f"No. {i}"},
            "im:rating": {"label": str(i % 5 + 1)},
            "content": {"label": TEXTS[i], "attributes": {"type": "text"}},
        }
        for i in range(20)
    ),
]


@pytest.mark.parametrize(
    ("content", "dropped"),
    [
        ({"feed": {"author": {"name": {"label": "Store"}}, "entry": FEED}}, {"no text": 1}),
        ({"comments": [{"content": {"value": t}} for t in TEXTS[:20]], "count": 20}, {}),
        ({"users": [{"id": 1}], "notes": [{"content": {"#text": t}} for t in TEXTS[:20]]}, {}),
    ],
)
def test_the_only_list_with_texts_is_read(tmp_path, content, dropped):
    dump = write_lines(tmp_path / "d.json", [json.dumps(content, indent=1)])
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert (result["kept"], result["dropped"]) == (20, dropped)
    if "feed" in content:
        assert {"stars": ["im:rating"], "title": ["title"]}.items() <= result["columns"][
            "used"
        ].items()


ROWS = "".join(f'P{i},{i % 5 + 1},No. {i},"{TEXTS[i]}"\n' for i in range(60))
HEADERS = {
    "groups": "Product,,Review,\ncode,Score,Review title,Review content\n",
    "title": "Reviews of spring,,,\ncode,Score,Review title,Review content\n",
    "told": "code,Score,Review title,Review content\nrequired,required,optional,required\n"
    'Code in your shop,Whole number from 1 to 5,Up to 50 letters,"Text, without any HTML"\n',
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_names_below_a_header_of_groups_are_read(tmp_path, name):
    (tmp_path / "d.csv").write_text(HEADERS[name] + ROWS)
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "d.csv")
    used = {"text": ["Review content"], "stars": ["Score"], "title": ["Review title"]}
    assert (result["kept"], result["columns"]["used"]) == (60, used)
    assert sum(result["dropped"].values()) == 2 * (name == "told")


QUOTED = ["id,stars,text", *(f'r{i},5,"{TEXTS[i]}"' for i in range(9))]
MIDDLE = ["n,text,stars", *(f"1,{t},5" for t in TEXTS[:9])]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("a.csv", ["stars,text", *(f"5,{t}" for t in TEXTS[:9]), "4,cut", "here"]),
        ("c.csv", [*MIDDLE, "1,cut", "here,4"]),
        ("e.csv", [*QUOTED, 'r9,4,"cut', "sadly, badly, and here"]),
        ("f.csv", [*QUOTED, 'r9,4,"It has a 9" screen', 'sadly, badly, here"']),
        ("h.csv", [*QUOTED, "r9,4,cut, too", "sadly, badly, and, here"]),
    ],
)
def test_the_halves_of_a_record_are_one_reject(tmp_path, name, lines):
    dump = write_lines(tmp_path / name, [*lines, *lines[1:3]])
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert (result["kept"], result["dropped"]["duplicate"]) == (9, 2)
    [reject] = rejects_of(tmp_path / "corpus")
    assert reject["line"] == len(lines) - 1
    assert reject["bytes"] == len("\n".join(lines[-2:]))


@pytest.mark.parametrize(
    "spellings",
    [
        ["qualité", "qualite\u0301", "Qualité\u00a0", "qua\u200blité"],
        ["Refund > Refused", "Refund>Refused", "Refund >Refused"],
    ],
)
def test_spellings_that_look_the_same_are_one_class(spellings):
    assert len({fold(one) for one in spellings}) == 1
    values = decide_values(dict.fromkeys(spellings, 1))
    assert len({values.find_class(one) for one in spellings}) == 1


def test_quotes_around_a_value_and_errors_are_no_values():
    assert parse_rating('"3"') == (3, 0)
    values = decide_values({"yes": 2, '"yes"': 1, "#REF!": 1, "no": 2})
    assert values.find_class("#REF!") is None


def test_class_names_of_parquet_are_used(tmp_path):
    features = {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}
    said = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pa.table({"text": TEXTS, "label": [i % 2 for i in range(60)]})
    pq.write_table(table.replace_schema_metadata(said), tmp_path / "d.parquet")
    dump = tmp_path / "d.parquet"
    result = run_job(tmp_path / "corpus", "--input", dump, "--labels", "label")
    assert result["labels"]["label"]["classes"] == ["bad", "good"]


TICKETS = "".join(f'{i},"{text_of(i)}",{i % 5 + 1}\n' for i in range(40))
DESCRIBED = {
    "qualtrics": 'ID,"In your words,\nwhat did you like?",How many?\n'
    '"{""ImportId"": ""_id""}","{""ImportId"": ""QID1""}","{""ImportId"": ""QID2""}"\n',
    "types": "integer,string,float\n",
    "surveymonkey": ",Open-Ended Response,Response\n",
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_rows_that_describe_the_columns_are_left_out(tmp_path, name):
    dump = tmp_path / "survey.csv"
    dump.write_text("id,text,stars\n" + DESCRIBED[name] + TICKETS)
    result = run_job(tmp_path / "corpus", "--input", dump)
    count = 2 if name == "qualtrics" else 1
    assert (result["read"], result["kept"]) == (40 + count, 40)
    assert result["dropped"] == {DESCRIPTION: count}
    assert result["stars_scale"] == "1-5"
    twice = tmp_path / "twice.csv"
    twice.write_text(dump.read_text() + dump.read_text())
    assert run_job(tmp_path / "twice", "--input", twice)["dropped"][DESCRIPTION] == 2 * count

    reasons = read_as_scored(dump, tmp_path).reasons
    assert reasons == [DESCRIPTION] * count + [None] * 40


def test_a_delimiter_at_the_end_of_each_row_is_none(tmp_path):
    dump = tmp_path / "own.csv"
    dump.write_text("id,text,stars\n" + TICKETS.replace("\n", ",\n"))
    assert run_job(tmp_path / "corpus", "--input", dump)["kept"] == 40
