"""What a dry run tells of files as people have them: their reviews, or one line that helps."""

import gzip
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import Dump
from amazon_electra.flows.dumps.preview import describe_files, read_previews
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store.store import Store
from tests.beam_jobs.dumps import shared_data, text_of, write_lines

SHAPES = {
    "commas.json": "1-5",
    "decimal.parquet": "1-5",
    "drugs.tsv": "1-10",
    "excel_de.csv": "1-5",
    "flipkart.csv": "1-5",
    "mongo.json": "1-5",
    "mongo_asin.json": "1-5",
    "nested.parquet": "1-5",
    "r_10.csv": "2-10",
    "r_100.csv": "20-100",
    "r_comma.csv": "1-5",
    "r_half.csv": "1-5",
    "r_pct.csv": "20-100",
    "r_sterne.csv": "1-5",
    "r_unicode.csv": "1-5",
    "sep.csv": "1-5",
    "steam.json": "",
    "two_scores.csv": "",
    "polarity-00000-of-00001.parquet": "",
}
"""The scale of the stars of each file of shared/data/shapes that is read as it is; "" without any:
the labels of steam.json and of polarity are no stars."""
REFUSED = {
    "denied.jsonl": [],
    "elastic.json": ["--columns text=_source.body"],
    "p_columns.json": [],
    "p_values.json": [],
    "x.xlsx": [],
    "zhang_polarity.csv": ["columns"],
}
"""Files that are not read as they are, and what the line about each names."""


def preview(folder, *paths, **dump):
    chosen, store = Dump(paths=list(map(str, paths)), **dump), Store(folder / "store")
    previews = read_previews(chosen, build_dump_stage(chosen, store))
    print("\n".join(describe_files(chosen, previews)))


@pytest.mark.parametrize("name", [*SHAPES, *REFUSED])
def test_the_shapes_that_people_have(tmp_path, capsys, name):
    file = shared_data() / "shapes" / name
    if name in REFUSED:
        with pytest.raises(UserError) as told:
            preview(tmp_path, file)
        assert all(word in str(told.value) for word in REFUSED[name])
        assert "\n" not in str(told.value)
        return
    preview(tmp_path, file)
    told = capsys.readouterr().out
    assert f", about {3 if name == 'two_scores.csv' else 60} reviews\n" in told
    assert f"on the scale {SHAPES[name]}\n" in told or not SHAPES[name]


def test_every_shape_is_among_them():
    names = {path.name for path in (shared_data() / "shapes").iterdir()} - {"README.md"}
    assert names == {*SHAPES, *REFUSED}


SCALES = {
    "1-5": ([4, 5, 1], ["4 stars", "5 stars", "1 star"]),
    "1-10": ([10, 1, 8], ["10 (5 stars)", "1 star", "8 (4 stars)"]),
    "20-100": (["100%", "20%", "80%"], ["100 (5 stars)", "20 (1 star)"]),
    "binary": ([True, False], ["true (4 stars)", "false (2 stars)"]),
    "fit more than one scale": ([0, 5, 3], ["0", "5"]),
}


@pytest.mark.parametrize("scale", SCALES)
def test_the_stars_are_those_that_the_job_makes(tmp_path, capsys, scale):
    values, shown = SCALES[scale]
    records = [{"text": f"Text {i}.", "stars": values[i % len(values)]} for i in range(9)]
    preview(tmp_path, write_lines(tmp_path / "a.json", records))
    told = capsys.readouterr().out
    assert re.search(f"^stars .*{scale}", told, re.MULTILINE)
    for i, stars in enumerate(shown):
        assert re.search(rf"^ +{re.escape(stars)} +Text {i}\.$", told, re.MULTILINE), told


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"[]", ""),
        (b"a,b\nx,y\n", "--columns text=NAME"),
        (b'{"a": [{"body": "x"}], "b": [{"body": "y"}]}', "records: "),
        (b"Hello there\n", "dump.format"),
        (b"rating,text\n", ""),
        (b"rating,text,notes\n5,,good\n", "dump.columns text=NAME"),
        (b"rating,text\n5,a,b\n", "line 2"),
        (gzip.compress(b"rating,text\n5,a b\n") + b"x", ""),
    ],
)
def test_what_gives_no_review_is_refused(tmp_path, content, named):
    (tmp_path / "d.csv").write_bytes(content)
    with pytest.raises(UserError) as told:
        preview(tmp_path, tmp_path / "d.csv")
    assert "d.csv" in str(told.value)
    assert named in str(told.value)


def test_of_a_folder_parts_without_records_are_read_and_odd_names_told(tmp_path, capsys):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "part-0").write_bytes(b"")
    write_lines(tmp_path / "f" / "part-1", ['{"text": "a b"}'])
    preview(tmp_path, tmp_path / "f")
    assert "about 1 review" in capsys.readouterr().out
    link, odd = tmp_path / "f" / "me", tmp_path / "f" / os.fsdecode(b"caf\xe9.json")
    for path, named in ((link, "f/me"), (odd, odd.name)):
        path.symlink_to(path)
        with pytest.raises(UserError) as told:
            preview(tmp_path, tmp_path / "f")
        assert named in str(told.value)
        path.unlink()


def test_texts_in_another_encoding_are_told(tmp_path, capsys):
    rows = [f"{stars},Très bon {i}".encode("cp1252") for i, stars in enumerate(["5", "3", "4"])]
    preview(tmp_path, write_lines(tmp_path / "d.csv", ["rating,text", *rows]))
    told = capsys.readouterr().out
    assert "cp1252" in told
    assert "dump.encoding" in told


def test_the_values_of_a_label_are_shown_as_classes(tmp_path, capsys):
    values = ["Yes", "yes ", "no", "n/a", "No"]
    records = [{"text": f"Text {i}.", "ok": values[i % 5]} for i in range(50)]
    path = write_lines(tmp_path / "a.json", records)
    preview(tmp_path, path, labels=["ok"])
    said = capsys.readouterr().out
    assert re.search(r"^label .*Yes 20, No 20$", said, re.MULTILINE)
    preview(tmp_path, path, labels=["ok"], fold_labels=False)
    assert "n/a 10" in capsys.readouterr().out


def test_titles_without_a_body_are_offered(tmp_path, capsys):
    records = [{"text": f"It boils {i}." * (i % 2), "title": f"No. {i}"} for i in range(20)]
    path = write_lines(tmp_path / "a.json", records)
    preview(tmp_path, path)
    assert "--columns text=title" in capsys.readouterr().out
    preview(tmp_path, path, columns="text=title")
    assert "It boils" not in capsys.readouterr().out


def write_table(path, names, rows):
    """Write a CSV or a Parquet file."""
    if path.suffix == ".csv":
        return write_lines(path, [",".join(names), *(",".join(map(str, row)) for row in rows)])
    records = [dict(zip(names, row, strict=True)) for row in rows]
    pq.write_table(pa.Table.from_pylist(records), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_answers_and_lists_are_no_texts_in_any_format(tmp_path, kind):
    texts = [text_of(i) for i in range(60)]
    cells = [[("Yes", "No", t)[i % 3], f"[('Rated 4.0' {t!r})]"] for i, t in enumerate(texts)]
    rows = [[f"r{i // 3}", ("Again?", "Soon?", "Why?")[i % 3], cells[i][0]] for i in range(60)]
    answers = write_table(tmp_path / f"a.{kind}", ["person", "question", "comment"], rows)
    lists = write_table(tmp_path / f"l.{kind}", ["n", "reviews"], [*enumerate(c for _, c in cells)])
    for path, named in ((answers, "text=comment"), (lists, "reviews")):
        with pytest.raises(UserError) as told:
            preview(tmp_path, path)
        assert named in str(told.value)
