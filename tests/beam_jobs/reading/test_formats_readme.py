"""beam_jobs/reading/README.md says what the code does."""

import re
from pathlib import Path

import pytest

from beam_jobs import corpus_job
from beam_jobs.corpus.write import WRITE_REASONS
from beam_jobs.reading import detection, fields
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.marked_text import POLARITY_STARS
from tests.beam_jobs.reading.test_poisoned import POISON

PACKAGE = Path(corpus_job.__file__).parent
README = (PACKAGE / "reading" / "README.md").read_text()
TABLES = re.findall(r"(?:^\|.*\n)+", README, re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")


def rows_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


PUBLISHED = {column[0]: column[2:] for column in zip(*rows_of(TABLES[0]), strict=True)}


@pytest.mark.parametrize("release", [name for name in PUBLISHED if "JSON" in name or "CSV" in name])
def test_published_columns_give_the_fields_of_the_table(release):
    listed = dict(
        zip(fields.FIELDS, (NAME.findall(cell)[0] for cell in PUBLISHED[release]), strict=True)
    )
    assert [NAME.findall(cell)[0] for cell in PUBLISHED["Review field"]] == list(fields.FIELDS)
    assert (
        fields.map_columns({*listed.values(), "helpful", "reviewerName", "images"}, {}, "x")
        == listed
    )


def test_snap_and_fasttext_give_the_fields_of_the_table(tmp_path):
    cells = zip(fields.FIELDS, PUBLISHED["SNAP key/value"], strict=True)
    keys = {field: names[0] for field, cell in cells
            if (names := NAME.findall(cell))}  # fmt: skip
    snap = tmp_path / "x.txt"
    snap.write_text("".join(f"{key}: 4\n" for key in keys.values()) + "\n")
    assert (
        dict(detection.detect_layout(str(snap), "", "", None, {}, Layout("snap")).mapping) == keys
    )
    fasttext = tmp_path / "x.ft.txt"
    fasttext.write_text("__label__1 Title: text\n__label__2 Title: text\n")
    found = detection.detect_layout(str(fasttext), "", "", None, {}, Layout("snap"))
    assert set(dict(found.mapping)) == {
        f
        for f, cell in zip(fields.FIELDS, PUBLISHED["Kaggle fastText"], strict=True)
        if cell != "–"
    }
    stars = re.findall(
        r"`(__label__\d)` → (\d)", PUBLISHED["Kaggle fastText"][list(fields.FIELDS).index("stars")]
    )
    assert {label: int(n) for label, n in stars} == POLARITY_STARS


def test_the_names_are_those_of_the_code():
    listed = {
        NAME.findall(field)[0]: tuple(NAME.findall(names))
        for field, names in rows_of(TABLES[1])[2:]
    }
    assert listed == fields.COLUMN_NAMES


def listed_reasons() -> set[str]:
    return {reason for row in rows_of(TABLES[2])[2:] for reason in NAME.findall(row[0])}


def test_the_reasons_are_those_of_the_code():
    """Both ways: literals where a reason is given, and what stands in the table; two are put
    together at run time.
    """
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    given = set(re.findall(r'make_reject\([^"\n]*"([a-zA-Z ]+)"', source)) | set(WRITE_REASONS)
    given |= set(
        re.findall(r'dropped\["([a-zA-Z ]+)"\] \+=|self\.drop_rows\(.*"([^"]+)"\)', source)[0]
    ) - {""}
    assert len(given) > 8
    assert given <= listed_reasons()
    composed = {"damaged file: …", "fewer columns", "more columns"}
    assert not [reason for reason in listed_reasons() - composed if f'"{reason}"' not in source]


def test_reasons_that_poisoned_records_get_are_in_the_table():
    assert {reason for _, reason in POISON.values()} <= listed_reasons()
