"""Where the text of a review stands: in two columns, in its title alone, in a column with a name
that is known or one that only looks like it.
"""

import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.config import ReadingConfig
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.fields import choose_text
from tests.beam_jobs.dumps import (
    look_at,
    read_as_scored,
    rows_of,
    run_job,
    text_of,
    texts_in,
    write_lines,
)
from tests.refusals import refuses


@pytest.mark.parametrize(
    ("text", "title", "chosen"),
    [
        ("", "It broke and I returned it", (None, "It broke and I returned it")),
        (None, "It broke", (None, "It broke")),
        ("n/a", "It broke", (None, "It broke")),
        ("#NAME?", "It broke", (None, "It broke")),
        ("Good", "It works as it should", ("It works as it should. Good.", None)),
        ("Good", "Nice", ("Good", "Nice")),
        ("It boils.", "A kettle for us", ("A kettle for us. It boils.", None)),
        ("It boils quickly.", "A kettle for us", ("It boils quickly.", "A kettle for us")),
        (7, "It broke", (7, "It broke")),
    ],
)
def test_a_title_is_no_text_by_itself(text, title, chosen):
    assert choose_text(text, title) == chosen


def test_reviews_without_a_body_are_dropped(tmp_path):
    bodies = ["", "n/a", None, "Good"]
    records = [
        {"body": bodies[i % 4], "title": f"It broke {i} times", "rating": 3} for i in range(40)
    ]
    dump = write_lines(tmp_path / "dump.json", records)
    assert run_job(tmp_path / "corpus", "--input", dump)["dropped"] == {"no text": 30}
    scored = read_as_scored(dump, tmp_path)
    assert scored.reasons == ["no text", "no text", "no text", None] * 10
    assert set(texts_in(tmp_path / "corpus")) == {text for text in scored.texts if text}
    named = run_job(tmp_path / "named", "--input", dump, "--columns", "text=title")
    assert named["kept"] == 40


def write_table(path, table):
    if path.suffix == ".parquet":
        pq.write_table(pa.table(table), path)
    elif path.suffix == ".json":
        names = list(table)
        write_lines(
            path, [dict(zip(names, row, strict=True)) for row in zip(*table.values(), strict=True)]
        )
    else:
        rows = [
            ",".join(table),
            *(",".join(map(str, row)) for row in zip(*table.values(), strict=True)),
        ]
        path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("name", ["own.csv", "own.json", "own.parquet"])
def test_two_columns_are_one_text(tmp_path, name):
    table = {
        "rating": [i % 5 + 1 for i in range(40)],
        "pros": [f"The kettle {i} boils quickly and well" for i in range(40)],
        "cons": ["" if i % 2 else f"the lid {i} is loose and rattles!" for i in range(40)],
    }
    dump = write_table(tmp_path / name, table)
    if name != "own.parquet":  # of which only the footer is read
        with refuses(f"{name}", "text=pros+cons"):
            look_at(dump)
    result = run_job(tmp_path / "corpus", "--input", dump, "--columns", "text=pros+cons")
    assert result["kept"] == 40
    assert result["columns"]["used"]["text"] == ["pros+cons"]
    made = set(texts_in(tmp_path / "corpus"))
    assert made == set(read_as_scored(dump, tmp_path, columns="text=pros+cons").texts)
    assert "The kettle 0 boils quickly and well. the lid 0 is loose and rattles!" in made
    assert "The kettle 1 boils quickly and well." in made


def test_a_column_with_a_plus_in_its_name_is_one(tmp_path):
    dump = write_table(
        tmp_path / "own.csv", {"pros+cons": ["It boils."], "pros": ["a"], "cons": ["b"]}
    )
    run_job(tmp_path / "corpus", "--input", dump, "--columns", "text=pros+cons")
    assert [row["sentences"] for row in rows_of(tmp_path / "corpus")] == [["It boils."]]
    with refuses("lid"):
        look_at(dump, columns="text=pros+lid")


def test_the_column_with_the_longest_texts_is_proposed(tmp_path):
    table = {"Q1": range(30), "Q2": ["yes"] * 30, "Q3, in words": [text_of(i) for i in range(30)]}
    lines = [f'{a},{b},"{c}"\n' for a, b, c in zip(*table.values(), strict=True)]
    dump = tmp_path / "survey.csv"
    dump.write_text('Q1,Q2,"Q3, in words"\n' + "".join(lines))
    with pytest.raises(UserError) as caught:
        look_at(dump)
    words = shlex.split(str(caught.value).partition("--columns ")[2].partition("`")[0])
    assert words[0] == '"text=Q3, in words"'
    assert dict(look_at(dump, columns=words[0]).layout.mapping)["text"] == "Q3, in words"


def test_comment_comes_before_content_and_a_label_is_no_title(tmp_path):
    table = {"content": ["A kettle"], "comment": ["It boils."], "subject": ["delivery"]}
    dump = write_table(tmp_path / "own.csv", table)
    assert dict(look_at(dump).layout.mapping) == {"text": "comment", "title": "subject"}
    [row] = work_units.list_dump_files(ReadingConfig(), [str(dump)], ["subject"])
    assert dict(row.layout.mapping) == {"text": "comment", "label.subject": "subject"}


def test_a_column_that_stands_twice_is_none_unless_it_is_named(tmp_path):
    rows = [f"{text_of(i)},lid,handle\n" for i in range(20)]
    dump = tmp_path / "own.csv"
    dump.write_text("Description,Comment,Comment\n" + "".join(rows))
    with refuses("text=Description"):
        look_at(dump)
    with refuses("Comment"):
        look_at(dump, columns="text=Comment")
