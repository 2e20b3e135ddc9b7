"""What a dry run tells of files as people have them: their reviews, or one line that helps."""

import gzip
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.flows.configuration.form import Dump
from amazon_electra.flows.dumps.preview import describe_files, read_previews
from amazon_electra.flows.stages.dump import build_dump_stage
from amazon_electra.flows.store.store import Store
from tests.beam_jobs.dumps import shared_data, text_of, write_lines
from tests.refusals import refuses

SHAPES = {
    "1-5": "commas.json decimal.parquet excel_de.csv flipkart.csv mongo.json mongo_asin.json"
    " nested.parquet r_comma.csv r_half.csv r_sterne.csv r_unicode.csv sep.csv",
    "1-10": "drugs.tsv",
    "2-10": "r_10.csv",
    "20-100": "r_100.csv r_pct.csv",
    "": "steam.json two_scores.csv polarity-00000-of-00001.parquet",
}
"""By the scale of their stars the files of shared/data/shapes that are read as they are; the labels
of steam.json and of polarity are no stars."""
REFUSED = {
    "elastic.json": "--columns text=_source.body",
    "zhang_polarity.csv": "columns",
    **dict.fromkeys(("denied.jsonl", "p_columns.json", "p_values.json", "x.xlsx"), ""),
}
"""Files that are not read as they are, and what the line about each names."""
CASES = [(name, scale) for scale, names in SHAPES.items() for name in names.split()]


def preview(folder, *paths, **dump):
    chosen, store = Dump(paths=list(map(str, paths)), **dump), Store(folder / "store")
    previews = read_previews(chosen, build_dump_stage(chosen, store))
    print("\n".join(describe_files(chosen, previews)))


@pytest.mark.parametrize(("name", "scale"), CASES)
def test_the_shapes_that_people_have(tmp_path, capsys, name, scale):
    preview(tmp_path, shared_data() / "shapes" / name)
    shown = capsys.readouterr().out
    assert f", about {3 if name == 'two_scores.csv' else 60} reviews\n" in shown
    assert f"on the scale {scale}\n" in shown or not scale


@pytest.mark.parametrize("name", REFUSED)
def test_shapes_that_are_not_read_are_refused(tmp_path, name):
    with refuses(REFUSED[name]):
        preview(tmp_path, shared_data() / "shapes" / name)


def test_every_shape_is_among_them():
    names = {path.name for path in (shared_data() / "shapes").iterdir()} - {"README.md"}
    assert names == {*dict(CASES), *REFUSED}


@pytest.mark.parametrize(
    "content", [b"[]", b"rating,text\n", gzip.compress(b"rating,text\n5,a b\n") + b"x"]
)
def test_what_gives_no_review_is_refused(tmp_path, content):
    (tmp_path / "d.csv").write_bytes(content)
    with refuses("d.csv"):
        preview(tmp_path, tmp_path / "d.csv")


def test_of_a_folder_parts_without_records_are_read_and_odd_names_told(tmp_path, capsys):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "part-0").write_bytes(b"")
    write_lines(tmp_path / "f" / "part-1", ['{"text": "a b"}'])
    preview(tmp_path, tmp_path / "f")
    assert "about 1 review" in capsys.readouterr().out
    link, odd = tmp_path / "f" / "me", tmp_path / "f" / os.fsdecode(b"caf\xe9.json")
    for path, named in ((link, "f/me"), (odd, odd.name)):
        path.symlink_to(path)
        with refuses(named):
            preview(tmp_path, tmp_path / "f")
        path.unlink()


def test_the_values_of_a_label_are_shown(tmp_path, capsys):
    records = [{"text": f"Text {i}.", "ok": ["Yes", "no", "Yes"][i % 3]} for i in range(60)]
    preview(tmp_path, write_lines(tmp_path / "a.json", records), labels=["ok"])
    assert "label     ok: Yes 40, no 20\n" in capsys.readouterr().out


def test_lists_in_cells_of_parquet_are_no_texts(tmp_path):
    """Of which the first records are read, not the footer alone."""
    lists = {"n": range(60), "reviews": [f"[('Rated 4.0' {text_of(i)!r})]" for i in range(60)]}
    pq.write_table(pa.table(lists), tmp_path / "d.parquet")
    with refuses("reviews"):
        preview(tmp_path, tmp_path / "d.parquet")


def test_of_files_with_the_same_columns_the_first_is_shown_and_the_damaged(tmp_path, capsys):
    for name in "abc":
        records = [{"text": f"Text {name} {i}.", "stars": 5, "ok": name} for i in range(30)]
        damaged = ["{"] if name == "c" else []
        write_lines(tmp_path / f"{name}.json", [*records, *damaged])
    preview(tmp_path, tmp_path / "*.json", labels=["ok"])
    shown = capsys.readouterr().out
    assert shown.count("columns   ") == 1
    assert "label     ok: a 30, b 30, c 30\n" in shown
    assert "          and 2 more files with these columns, about 61 reviews\n" in shown
    assert "b.json" not in shown
    assert "c.json: json_lines, about 31 reviews; 1 of the first 31 are rejected\n" in shown
    assert "Text b" not in shown


def test_labels_of_fasttext_stand_apart_from_the_text(tmp_path, capsys):
    lines = [f"__label__{1 + i % 2} Title {i}: Text {i}." for i in range(30)]
    (tmp_path / "a.ft.txt").write_text("\n".join(lines))
    preview(tmp_path, tmp_path / "a.ft.txt")
    assert "stars false Text 0.\n" in capsys.readouterr().out
