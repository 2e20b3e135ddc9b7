"""What cannot be read is named: a file with what helps, a record with its line and the reason, and
nothing of the reviewer.
"""

import base64
import gzip
import hashlib
import io
import json
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from tests.beam_jobs.dumps import look_at, rejects_of, review, run_job, write_lines
from tests.beam_jobs.reading.three_reviews import REVIEWS, csv_text, lines, mcauley


def test_a_label_that_shows_the_others_to_be_stars_is_the_users_mistake(tmp_path):
    (tmp_path / "d.txt").write_text("__label__2 T: good text\n" * 12_000 + "__label__5 T: better\n")
    with pytest.raises(UserError, match=r"d.txt has __label__5, but its beginning only .*shuf"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.txt")


def test_a_file_that_begins_with_too_long_a_record_is_named(tmp_path):
    write_lines(tmp_path / "d.json", [review(0, "x" * 700_000), review(1)])
    with pytest.raises(UserError, match=r"d.json: no .* record in its first .*`max_record_bytes`"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.json", "--max_record_bytes", 100_000)


GOOD = lines([json.dumps(r) for r in mcauley(REVIEWS)]).encode()
CSV = csv_text(",").encode()


def tar(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("d.json")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def parquet(**columns: list) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


REFUSED = {
    "xz": (lzma.compress(GOOD), "packed with xz, which is not read; unpack it first: xz -d"),
    "tar": (tar(GOOD), "is a tar archive, .* tar -xf"),
    "tar.gz": (gzip.compress(tar(GOOD)), "is a tar archive, .* tar -xf"),
    "gz in gz": (gzip.compress(gzip.compress(GOOD)), "packed twice"),
    "zip with prose": (
        zipped(good=GOOD, notes=b"Hello there"),
        r"/notes: its format is not known .*leave",
    ),
    "zip with a bad header": (
        b"PK\3\4".join(zipped(a=GOOD, b=GOOD).split(b"PK\3\4")[:2])
        + b"XXXX"
        + zipped(a=GOOD, b=GOOD).split(b"PK\3\4")[2],
        "not a whole zip file",
    ),
    "UTF-16 LE": (GOOD.decode().encode("utf-16-le"), "iconv -f UTF-16LE "),
    "UTF-16 BE": (CSV.decode().encode("utf-16-be"), "iconv -f UTF-16BE "),
    "CR": (CSV.replace(b"\n", b"\r"), "lines end with CR alone"),
    "binary": (bytes(range(256)) * 20, "is a binary file"),
    "a page of a store": (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>',
        "is XML or HTML, which is not read; if it is the error page of a download, fetch it again",
    ),
    "a pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 9\n",
        "Git LFS's pointer .* git lfs pull",
    ),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "an Excel workbook; .*libreoffice"),
    "ods": (zipped(**{"mimetype": b"application", "content.xml": b"<a/>"}), "is a workbook; save"),
    "a database": (b"SQLite format 3\0" + bytes(99), "a SQLite database"),
    "a pickle": (pickle.dumps([{"text": "a, b"}]), "is a pickle, .* as Parquet where it was made"),
    "a column twice": (b"text,stars,text\na b,5,c d\n", "two columns are called text; rename one"),
    "Yelp's businesses": (
        b'{"business_id":"a","name":"b","stars":4.5,"attributes":{"Parking":"yes"},'
        b'"categories":"Food, Tea"}\n',
        r"no column is known to hold the text .*, or leave the file out",
    ),
    "no header": (b"4.0,Good kettle,It boils\n2.0,Bad kettle,It leaks\n", "no names of columns"),
    "late header": (
        b"Reviews of 2023,,\n,,\nrating,text,shop\n5,good,a\n",
        "but line 3 seems to; delete what is above it: sed -i 1,2d",
    ),
    "comment": (b"# of a tool\nrating;text\n5;good\n", "but line 2 seems to; .*sed -i 1,1d"),
    "texts": (b"It works, and well: I would buy it again.\n" * 3, "give `format='text'`"),
    "no header, tabs": (b"It works\t1\nIt broke\t0\n", r"sed -i '1i text\\tc2' .*given"),
    "delimiters in texts": (
        b"rating,text\n5,good, really\n4,fine, too\n",
        "more columns in line 2; its first line has 2 names: .*in double quotes",
    ),
    "counts": (b"review,details\n12,fine words\n3,more words\n", 'review holds no text but "12"'),
    "part of a page": (b"<head><title>302, Found</title></head>\nOne, two\n", "is XML or HTML"),
    "SQL": (b"INSERT INTO r (text, stars) VALUES ('a b', 5);\n", "is an SQL dump"),
    "mongodump": (
        b"\x2e\0\0\0\x07_id\0" + bytes(range(12)) + b"\x02text\0\x04\0\0\0a b\0\0",
        "is BSON of mongodump; convert it first: bsondump .*given",
    ),
    "MongoDB's shell": (
        b'{ "_id" : ObjectId("5f"), "text" : "a b", "stars" : NumberInt(5) }\n' * 2,
        "write it with mongoexport",
    ),
    "a script": (b'const reviews = [{"text": "a b, c"}];\n', "is a script around JSON; .*sed "),
    "JSON in strings": (json.dumps(GOOD.decode()).encode(), "JSON in strings; decode it: jq -r"),
    "objects by their keys": (
        json.dumps({"r": {f"-M{i}": {"text": "a b"} for i in range(9)}}).encode(),
        r"values of an object; write each in a line of its own: jq -c '\.\[\]\[\]' .*given",
    ),
    "lists by their keys": (
        json.dumps({f"B{i}": [{"text": "a b"}] for i in range(3)}).encode(),
        r"`records='B0'`, or, if all are of reviews: jq -c '\.\[\]\[\]' .*given",
    ),
    "strings": (json.dumps(["a b", "c d"]).encode(), "its lists have no names: write objects"),
    "zip in zip": (zipped(a=zipped(b=GOOD)), r"/a is a zip .*\(after: unzip .*given\)"),
    "zip with nothing": (zipped(), "is an empty zip file|holds no files"),
    "Parquet in gz": (gzip.compress(parquet(text=["a b"])), "give it as it is, neither packed"),
    "lists": (b'[["Good phone", 5]]', "lists without names"),
    "broken JSON": (b'{"text" "a"}\n' * 3, "broken JSON in line 1"),
    "texts in objects": (b'{"text": {"en": "Good phone"}, "n": 1}\n', r"text\.en"),
    "Arrow stream": (b"\xff\xff\xff\xff\x10\0\0\0", "is an Arrow stream, .*convert it first"),
    "cut Parquet": (parquet(text=["a b"] * 100)[:-50], "is not a whole Parquet file"),
    "prose": (b"Hello there\nno records here\n", "its format is not known"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_named_with_what_helps(tmp_path, what):
    content, message = REFUSED[what]
    (tmp_path / "given").write_bytes(content)
    with pytest.raises(UserError, match=f"given.*{message}"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "given")


ANSWERS = [
    {"message": "Not Found", "documentation_url": "https://docs.github.com", "status": "404"},
    {"error": "Repository not found"},
    {"error": {"code": 404, "message": "No such object", "errors": [{"message": "No such"}]}},
    {"error": {"root_cause": [{"reason": "no such index"}], "reason": "no"}, "status": 404},
    {"Error": {"Code": "NoSuchKey", "Message": "The key does not exist.", "Key": "d.json"}},
    {"Code": "NoSuchKey", "Message": "The key does not exist.", "RequestId": "A", "HostId": "B"},
    {"__type": "AccessDeniedException", "Message": "User is not authorized"},
    {"timestamp": "2026-01-01", "status": 404, "error": "Not Found", "message": "", "path": "/d"},
    {"type": "about:blank", "title": "Not Found", "status": 404, "detail": "no dump here"},
    {"errors": [{"message": "Not authorized"}, {"message": "Not you"}], "data": None},
    {"success": False, "message": "API key expired"},
    {"detail": "Not Found"},
    {"type": "about:blank", "title": "Not Found", "status": 404, "traceId": "00-1"},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: next(iter(answer)))
def test_an_answer_of_a_server_in_the_place_of_a_dump_is_named(tmp_path, answer):
    """However it is written down, unless the user says that it is a review."""
    forms = [
        json.dumps(answer),
        json.dumps(answer, indent=2) + "\n",
        json.dumps([answer]),
        repr(answer),
    ]
    for form in forms:
        path = tmp_path / "given"
        path.write_bytes(gzip.compress(form.encode()) if form.endswith("\n") else form.encode())
        with pytest.raises(
            UserError, match=r"given is the error message of a server.*fetch it again"
        ):
            look_at(path)


@pytest.mark.parametrize(
    ("review", "columns"),
    [
        ({"message": "I love this phone", "rating": 5}, None),
        ({"text": "It told me an error", "status": "published"}, None),
        ({"title": "Good", "message": "I love it", "timestamp": 3}, None),
        ({"message": "Not Found"}, "text=message"),
    ],
)
def test_a_single_review_is_no_answer_of_a_server(tmp_path, review, columns):
    for form in (json.dumps(review), json.dumps([review])):
        (tmp_path / "given").write_text(form)
        layout = look_at(tmp_path / "given", columns=columns).layout
        assert dict(layout.mapping)["text"] in review


def test_two_columns_of_one_name_in_parquet_are_named(tmp_path):
    columns = [pa.array(["a b"]), pa.array([5]), pa.array([4])]
    table = pa.Table.from_arrays(columns, names=["text", "stars", "stars"])
    pq.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(UserError, match=r"d\.parquet: two columns are called stars; rename one"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.parquet")


@pytest.mark.parametrize("name", ["_delta_log/0.json", "metadata/v1.metadata.json"])
def test_a_table_with_a_log_is_named(tmp_path, name):
    (tmp_path / "t" / name).parent.mkdir(parents=True)
    write_lines(tmp_path / "t" / name, [{"version": 1}])
    (tmp_path / "t" / "a.parquet").write_bytes(parquet(text=["a b"]))
    with pytest.raises(UserError, match=r"/t'`: a Delta or Iceberg table, .* its rows as Parquet"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "t")


def test_what_is_no_parquet_is_named(tmp_path):
    (tmp_path / "json").write_bytes(GOOD)
    with pytest.raises(UserError, match="json is not a whole Parquet file"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "json", "--format", "parquet")


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
    """Neither from records that are read nor from those that cannot be; with the option the raw
    bytes are there.
    """
    dump = write_lines(tmp_path / name, RELEASES[name])
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert result["kept"] == 1
    assert sum(result["dropped"].values()) == 1
    assert not traces_in(tmp_path / "corpus")
    run_job(tmp_path / "raw", "--input", dump, "--keep_raw_rejects", "true")
    assert traces_in(tmp_path / "raw") == {"0000000-00000.jsonl"}


def traces_in(folder: Path) -> set[str]:
    """Files that hold the reviewer's name or id, as they stand, in base64 or in a column of
    Parquet.
    """
    found = set()
    for path in (p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes() + (
            str(pq.read_table(path).to_pylist()).encode() if path.suffix == ".parquet" else b""
        )
        for reject in rejects_of(folder) if path.suffix == ".jsonl" else []:
            content += base64.b64decode(reject.get("raw_base64", ""))
        if b"A2USERID" in content or NAMED.encode() in content:
            found.add(path.name)
    return found
