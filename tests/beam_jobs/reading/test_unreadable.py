"""What cannot be read is named: a file with what helps, a record with its line and the reason, and
nothing of the reviewer.
"""

import hashlib
import io
import lzma
import pickle
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.beam_jobs.dumps import look_at, rejects_of, review, run_job, write_lines
from tests.refusals import refuses


def test_a_label_that_shows_the_others_to_be_stars_is_the_users_mistake(tmp_path):
    (tmp_path / "d.txt").write_text("__label__2 T: good text\n" * 12_000 + "__label__5 T: better\n")
    with refuses("d.txt", "shuf"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.txt")


def test_a_file_that_begins_with_too_long_a_record_is_named(tmp_path):
    write_lines(tmp_path / "d.json", [review(0, "x" * 700_000), review(1)])
    with refuses("d.json", "max_record_bytes"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.json", "--max_record_bytes", 100_000)


CSV = "text,stars\nthe kettle boils,5\n"
GOOD = b'{"reviewText": "the kettle boils"}\n' * 3


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def parquet(texts: list[str]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), buffer)
    return buffer.getvalue()


REFUSED = {
    "xz": (lzma.compress(GOOD), ""),
    "zip with a bad header": (
        b"PK\3\4".join(zipped(a=GOOD, b=GOOD).split(b"PK\3\4")[:2])
        + b"XXXX"
        + zipped(a=GOOD, b=GOOD).split(b"PK\3\4")[2],
        "zip",
    ),
    "binary": (bytes(range(256)) * 20, ""),
    "a pickle": (pickle.dumps([{"text": "a, b"}]), ""),
    "ends of old Macs": (CSV.replace("\n", "\r").encode(), ""),
    "a column twice": (b"text,stars,text\na b,5,c d\n", "text"),
    "no header": (b"4.0,Good kettle,It boils\n2.0,Bad kettle,It leaks\n", "columns"),
    "texts": (b"It works, and well: I would buy it again.\n" * 3, "columns"),
    "delimiters in texts": (b"rating,text\n5,good, really\n4,fine, too\n", "line 2"),
    "counts": (b"review,details\n12,fine words\n3,more words\n", "review"),
    "texts in objects": (b'{"text": {"en": "Good phone"}, "n": 1}\n', "text.en"),
    "cut Parquet": (parquet(["a b"] * 100)[:-50], "Parquet"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_named(tmp_path, what):
    """With the line, column or setting, where there is one."""
    content, named = REFUSED[what]
    (tmp_path / "given").write_bytes(content)
    with refuses("given", named) as caught:
        look_at(tmp_path / "given")
    assert "\n" not in str(caught.value)


def test_rejects_name_file_line_reason_and_bytes(tmp_path):
    (tmp_path / "d.csv").write_text('text,stars\n"two\nlines",5\nonly one field\n"good",4\na,b,c\n')
    run_job(tmp_path / "corpus", "--input", tmp_path / "d.csv")
    rejects = rejects_of(tmp_path / "corpus")
    assert [(r["line"], r["reason"], r["bytes"]) for r in rejects] == [
        (4, "fewer columns", 14),
        (6, "more columns", 5),
    ]
    line = (tmp_path / "d.csv").read_bytes().split(b"\n")[rejects[0]["line"] - 1]
    assert rejects[0]["sha256"] == hashlib.sha256(line).hexdigest()
    assert rejects[0]["file"] == str(tmp_path / "d.csv")


NAMED = "Reviewer Q. Namedthus"
RELEASES = {
    "2018.json": [
        review(1, reviewerName=NAMED, reviewerID="A2USERID"),
        '{"reviewerID": "A2USERID", "reviewerName": "',
    ],
    "list.json": [f'["{NAMED}", "A2USERID"]', review(2, reviewerName=NAMED, reviewerID="A2USERID")],
    "snap.txt": [
        f"review/userId: A2USERID\nreview/profileName: {NAMED}\nreview/text: fine words\n",
        f"{NAMED} A2USERID",
    ],
    "reviews.csv": ["text,user_id,name", f"good words,A2USERID,{NAMED}", f"A2USERID,{NAMED}"],
    "python.json": [
        "{'reviewerID': 'A2USERID', 'reviewText': 'x'}",
        f"{{'reviewerID': 'A2USERID', '{NAMED}'",
    ],
}


@pytest.mark.parametrize("name", RELEASES)
def test_nothing_of_a_reviewer_leaves_the_job_by_default(tmp_path, name):
    """Neither from records that are read nor from those that cannot be."""
    dump = write_lines(tmp_path / name, RELEASES[name])
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert result["kept"] == 1
    assert sum(result["dropped"].values()) == 1
    assert not traces_in(tmp_path / "corpus")


def traces_in(folder: Path) -> set[str]:
    """Files that hold the reviewer's name or id, as they stand or in a column of Parquet."""
    found = set()
    for path in (p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes() + (
            str(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else b""
        )
        if b"A2USERID" in content or NAMED.encode() in content:
            found.add(path.name)
    return found
