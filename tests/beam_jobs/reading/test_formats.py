"""Every published format, in every packing, gives the same reviews; the tables in
beam_jobs/reading/README.md are the contract.
"""

import base64
import bz2
import gzip
import hashlib
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.job.errors import UserError
from beam_jobs.reading import fields
from tests.beam_jobs.dumps import (
    rejects_of,
    review,
    rows_of,
    run_job,
    shared_data,
    texts_in,
    write_lines,
)

REVIEWS = [
    ("It broke. Never again!", "Sad", 1),
    ('He said "wow", twice; then left.', "A, b", 5),
    ("Three lines\nof text\nhere. Café.", "", 3),
]
SENTENCES = {
    "It broke. Never again!",
    'He said "wow", twice; then left.',
    "Three lines of text here. Café.",
}


def mcauley(rows: list[tuple[str, str, int]]) -> list[dict]:
    return [
        {"reviewText": text, "summary": title, "overall": float(stars)}
        for text, title, stars in rows
    ]


def lines(records: list[str]) -> str:
    return "".join(record + "\n" for record in records)


def csv_text(delimiter: str) -> str:
    rows = [["review_id", "star_rating", "review_headline", "review_body"]]
    rows += [["R1", str(stars), title, text] for text, title, stars in REVIEWS]
    return lines(
        [delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    )


FORMS = {
    "2018.json": lines([json.dumps(r) for r in mcauley(REVIEWS)]),
    "2014.json": lines([json.dumps({"helpful": [0, 0]} | r) + "\r" for r in mcauley(REVIEWS)]),
    "2023.jsonl": lines(
        [json.dumps({"rating": s, "title": t, "text": x, "images": []}) for x, t, s in REVIEWS]
    ),
    "bom.json": "\ufeff" + lines([json.dumps(r) for r in mcauley(REVIEWS)]),
    "array.json": json.dumps(mcauley(REVIEWS)),
    "array_lines.json": "[" + ",\n".join(json.dumps(r) for r in mcauley(REVIEWS)) + "]",
    "pretty.json": json.dumps(mcauley(REVIEWS), indent=2),
    "objects.json": "\n".join(json.dumps(r, indent=1) for r in mcauley(REVIEWS)),
    "one_line.json": "".join(json.dumps(r) for r in mcauley(REVIEWS)),
    "python.json": lines([repr(r) for r in mcauley(REVIEWS)]),
    "customer.csv": csv_text(","),
    "customer.tsv": csv_text("\t"),
    "semicolons.csv": csv_text(";").replace("\n", "\r\n"),
    "escaped.csv": csv_text(",").replace('""w', '\\"w').replace('w""', 'w\\"'),
    "unquoted.tsv": lines(
        ["marketplace\tstar_rating\treview_headline\treview_body"]
        + [f"US\t{s}\t{t}\t{' '.join(x.split())}" for x, t, s in REVIEWS]
    ),
    "snap.txt": "\n".join(
        f"product/productId: B1\nreview/score: {s}.0\nreview/summary: {t}\nreview/text: {x}\n"
        for x, t, s in REVIEWS
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_format_is_found_out_and_read(tmp_path, name):
    (tmp_path / name).write_text(FORMS[name], newline="")
    result = run_job(tmp_path / "corpus", "--input", tmp_path / name)
    assert (result["read"], result["kept"], result["dropped"]) == (3, 3, {})
    assert set(texts_in(tmp_path / "corpus")) == SENTENCES
    assert sorted(row["stars"] for row in rows_of(tmp_path / "corpus")) == [1, 3, 5]


@pytest.mark.parametrize(
    ("content", "notes", "rows"),
    [
        (
            "__label__1 Sad: It broke. Never again!\n" * 10 + "__label__2 all text\n",
            {"stars_from_polarity": 11},
            {(2, "It broke. Never again!"), (4, "all text")},
        ),
        (
            "__label__2 I love this: it works\n__label__1 No title here\n",
            {"stars_from_polarity": 2},
            {(4, "I love this: it works"), (2, "No title here")},
        ),
        (
            "".join(f"__label__{n} T: text {n}\n" for n in range(1, 6)) + "__label__7 T: text 7\n",
            {"stars_unknown": 6},
            {(None, f"text {n}") for n in (1, 2, 3, 4, 5, 7)},
        ),
        (
            "".join(f"__label__{n} T: text {n}\n" for n in range(1, 6)),
            {},
            {(n, f"text {n}") for n in range(1, 6)},
        ),
    ],
    ids=["polarity", "without titles", "classes", "stars"],
)
def test_what_the_labels_of_fasttext_stand_for(tmp_path, content, notes, rows):
    (tmp_path / "test.ft.txt").write_text(content)
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "test.ft.txt")
    assert result["notes"] == notes
    assert {
        (row["stars"], " ".join(row["sentences"])) for row in rows_of(tmp_path / "corpus")
    } == rows


def test_a_label_that_shows_the_others_to_be_stars_is_the_users_mistake(tmp_path):
    (tmp_path / "d.txt").write_text("__label__2 T: good text\n" * 12_000 + "__label__5 T: better\n")
    with pytest.raises(UserError, match=r"d.txt has __label__5, but its beginning only .*shuf"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.txt")


def test_classes_and_row_numbers_are_no_stars(tmp_path):
    pq.write_table(
        pa.table({"label": [0, 1], "content": ["awful", "great"]}), tmp_path / "polarity.parquet"
    )
    (tmp_path / "pandas.csv").write_text(",review\n1,fine words\n4,more words\n")
    run_job(tmp_path / "corpus", "--input", tmp_path / "polarity.parquet", tmp_path / "pandas.csv")
    assert [(row["stars"], row["verified"]) for row in rows_of(tmp_path / "corpus")] == [
        (None, None)
    ] * 4


@pytest.mark.parametrize("name", ["lines.json", "array.json", "d.csv", "d.json.gz"])
def test_a_first_record_longer_than_what_is_looked_at_first(tmp_path, name):
    records = [review(i, style={"x": "y" * 300_000 * (i == 0)}) for i in range(3)]
    content = json.dumps(records) if "array" in name else lines([json.dumps(r) for r in records])
    if name == "d.csv":
        content = f'stars,other,text\n5,"{"y" * 300_000}",Item 0\n4,y,Item 1\n3,y,Item 2\n'
    (tmp_path / name).write_bytes(
        gzip.compress(content.encode()) if name.endswith("gz") else content.encode()
    )
    result = run_job(tmp_path / "corpus", "--input", tmp_path / name)
    assert (result["read"], result["kept"]) == (3, 3)


def test_a_file_that_begins_with_too_long_a_record_is_named(tmp_path):
    write_lines(tmp_path / "d.json", [review(0, "x" * 700_000), review(1)])
    with pytest.raises(UserError, match=r"d.json: no .* record in its first .*--max-record-bytes"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.json", "--max_record_bytes", 100_000)


def test_times_beyond_the_year_9999_and_text_that_is_none(tmp_path):
    times = pa.array([1_400_000_000_000, 1_500_000_000_000], pa.int64()).cast(pa.timestamp("s"))
    dates = pa.array([1, 2], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"text": ["a b", "c d"], "timestamp": times}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"text": ["e f", "g h"], "date": dates}), tmp_path / "2.parquet")
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    pq.write_table(pa.table({"text": broken}), tmp_path / "3.parquet")
    result = run_job(tmp_path / "corpus", "--input", tmp_path)
    assert (result["read"], result["kept"], result["dropped"]) == (5, 4, {"broken Parquet": 1})


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


REFUSED = {
    "xz": (lzma.compress(GOOD), "packed with xz, which is not read; unpack it first: xz -d"),
    "tar": (tar(GOOD), "is a tar archive, .* tar -xf"),
    "tar.gz": (gzip.compress(tar(GOOD)), "is a tar archive, .* tar -xf"),
    "gz in gz": (gzip.compress(gzip.compress(GOOD)), "packed twice"),
    "zip with a README": (
        zipped(good=GOOD, README=b"Hello there"),
        r"/README: its format is not known .*leave",
    ),
    "zip with a bad header": (
        b"PK\3\4".join(zipped(a=GOOD, b=GOOD).split(b"PK\3\4")[:2])
        + b"XXXX"
        + zipped(a=GOOD, b=GOOD).split(b"PK\3\4")[2],
        "not a whole zip file",
    ),
    "UTF-16 with a mark": (GOOD.decode().encode("utf-16"), "iconv -f UTF-16 "),
    "UTF-16 LE": (GOOD.decode().encode("utf-16-le"), "iconv -f UTF-16LE "),
    "UTF-16 BE": (CSV.decode().encode("utf-16-be"), "iconv -f UTF-16BE "),
    "CR": (CSV.replace(b"\n", b"\r"), "lines end with CR alone"),
    "binary": (bytes(range(256)) * 20, "is a binary file"),
    "prose": (b"Hello there\nno records here\n", "its format is not known"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_named_with_what_helps(tmp_path, what):
    content, message = REFUSED[what]
    (tmp_path / "given").write_bytes(content)
    with pytest.raises(UserError, match=f"given.*{message}"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "given")


def test_what_is_no_parquet_is_named(tmp_path):
    pq.write_table(pa.table({"text": ["a b"] * 100}), tmp_path / "whole")
    (tmp_path / "cut").write_bytes((tmp_path / "whole").read_bytes()[:-50])
    with pytest.raises(UserError, match="cut is not a whole Parquet file"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "cut")
    (tmp_path / "json").write_bytes(GOOD)
    with pytest.raises(UserError, match="json is not a whole Parquet file"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "json", "--format", "parquet")


def test_parquet_with_named_columns(tmp_path):
    table = pa.table(
        {
            "body": [t for t, _, _ in REVIEWS],
            "points": [s for _, _, s in REVIEWS],
            "other": [1, 2, 3],
        }
    )
    pq.write_table(table, tmp_path / "mine.parquet", row_group_size=2)
    run_job(
        tmp_path / "corpus",
        "--input",
        tmp_path / "mine.parquet",
        "--columns",
        "text=body,stars=points",
    )
    assert set(texts_in(tmp_path / "corpus")) == SENTENCES
    assert sorted(row["stars"] for row in rows_of(tmp_path / "corpus")) == [1, 3, 5]


def zstd(content: bytes) -> bytes:
    return pa.Codec("zstd").compress(content, asbytes=True)


def pack(path: Path, content: bytes) -> None:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("folder/one.json", content)
    else:
        packers = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}
        half = content.index(b"\n") + 1
        path.write_bytes(
            packers[path.suffix](content[:half]) + packers[path.suffix](content[half:])
        )


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".zip"])
def test_packings_of_several_members(tmp_path, suffix):
    pack(tmp_path / f"d{suffix}", FORMS["2018.json"].encode())
    run_job(tmp_path / "corpus", "--input", tmp_path / f"d{suffix}")
    assert set(texts_in(tmp_path / "corpus")) == SENTENCES


def test_bytes_that_are_not_utf8_are_read_as_cp1252_and_counted(tmp_path):
    content = "Text,Score\nna\xefve \x93caf\xe9\x94 here,5\nplain one,4\n".encode("latin-1")
    (tmp_path / "d.csv").write_bytes(content)
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "d.csv")
    assert result["notes"]["decoded_as_cp1252"] == 1
    assert "naïve “café” here" in texts_in(tmp_path / "corpus")
    declared = run_job(tmp_path / "corpus", "--input", tmp_path / "d.csv", "--encoding", "cp1252")
    assert "decoded_as_cp1252" not in declared["notes"]


def test_stars_in_every_spelling(tmp_path):
    given = [
        5,
        5.0,
        "5",
        "5.0",
        "5.0 out of 5 stars",
        "4 stars",
        4.5,
        "NaN",
        None,
        0,
        6,
        True,
        [5],
        "very good",
    ]
    write_lines(tmp_path / "d.json", [review(i, overall=stars) for i, stars in enumerate(given)])
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "d.json")
    stars = {row["sentences"][0]: row["stars"] for row in rows_of(tmp_path / "corpus")}
    assert [stars[f"Item {i} arrived."] for i in range(len(given))] == [5] * 5 + [4] + [None] * 8
    assert result["notes"]["stars_unknown"] == 8


def test_a_file_without_a_text_column_is_the_users_mistake(tmp_path):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="--columns text="):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.csv")


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
    assert traces_in(tmp_path / "raw") == {"0000-00000.jsonl"}


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


COUNTS = {
    "mcauley_2018/AMAZON_FASHION_5.json.gz": (3176, {"no text": 16}),
    "mcauley_2018/All_Beauty_5.json": (5269, {"no text": 5}),
    "mcauley_2014/reviews_crlf.json": (2973, {}),
    "mcauley_2014/Cell_Phones_and_Accessories_5_truncated_array.json.gz": (
        4777,
        {"broken JSON": 1},
    ),
    "mcauley_2023/Books.jsonl": (4286, {}),
    "customer_reviews/1984.csv.gz": (1679, {}),
    "fasttext/test.ft.txt": (2204, {}),
    "other/amazon_alexa.tsv": (3150, {}),
    "other/fine_foods_not_utf8.csv": (200, {}),
    "other/snap_key_value.txt": (1000, {}),
    "other/spanish_reviews.csv.gz": (10120, {}),
}


@pytest.mark.parametrize("name", COUNTS)
def test_real_files(tmp_path, name):
    read, dropped = COUNTS[name]
    result = run_job(
        tmp_path, "--input", shared_data() / "reviews" / name, "--punkt_sample_bytes", 50_000
    )
    assert result["read"] == read
    assert {reason: result["dropped"].get(reason) for reason in dropped} == dropped


def test_columns_are_recognized_by_rule_and_the_unused_ones_listed(tmp_path):
    rows = [
        "review_title,review_text,review_star,store_rating,Product Name,colour",
        'Fine,"It works, all of it",5.0 out of 5 stars,3,Kettle,red',
        'Bad,"It broke, all of it",1.0 out of 5 stars,3,Kettle,red',
    ]
    dump = write_lines(tmp_path / "d.csv", rows)
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert sorted(row["stars"] for row in rows_of(tmp_path / "corpus")) == [1, 5]
    assert result["columns"] == {
        "used": {"stars": ["review_star"], "text": ["review_text"], "title": ["review_title"]},
        "unused": {"Product Name": "item_id", "colour": "", "store_rating": "stars"},
    }


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("Review Star", "stars"),
        ("reviewStars", "stars"),
        ("review-rating", "stars"),
        ("reviews.score", "stars"),
        ("Overall", "stars"),
        ("Review_Subject", "title"),
        ("HEADLINE", "title"),
        ("Review Text", "text"),
        ("helpful_votes", ""),
        ("product_rating_count", ""),
        ("label", ""),
    ],
)
def test_a_column_is_known_without_separators_and_prefix(name, field):
    found = {field: fields.find_column(field, {name}) for field in fields.FIELDS}
    assert found == dict.fromkeys(fields.FIELDS, "") | ({field: name} if field else {})


def wrap(count: int, indent: int | None = None) -> str:
    reviews = [review(number, images=[{"url": "x"}, {"url": "y"}]) for number in range(count)]
    return json.dumps({"asin": "B0", "meta": {"tags": ["a"]}, "reviews": reviews}, indent=indent)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["d.json", "d.json.gz"])
def test_an_object_around_the_reviews_is_unwrapped(tmp_path, monkeypatch, indent, name):
    monkeypatch.setattr("beam_jobs.reading.work_units.MIN_UNIT_BYTES", 20_000)
    dump = write_lines(tmp_path / name, [wrap(2_000, indent)])
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert (result["read"], result["kept"]) == (2_000, 2_000)
    assert result["units"] > 5 or name.endswith("gz")
    assert result["columns"]["used"]["text"] == ["reviewText"]


def test_of_several_lists_the_reviews_are_named(tmp_path):
    record = {"data": {"page": [{"n": 1}], "reviews": [review(0), review(1)]}, "total": 2}
    dump = write_lines(tmp_path / "d.json", [json.dumps(record)])
    with pytest.raises(UserError, match=r"d\.json: the reviews may be in data.page, data.reviews"):
        run_job(tmp_path / "corpus", "--input", dump)
    with pytest.raises(UserError, match=r"no list of objects is called reviews .*data.reviews"):
        run_job(tmp_path / "corpus", "--input", dump, "--records", "reviews")
    result = run_job(tmp_path / "corpus", "--input", dump, "--records", "data.reviews")
    assert (result["read"], result["kept"]) == (2, 2)


def test_records_with_lists_are_no_wrappers(tmp_path):
    lines = [review(0, images=[{"url": "x"}])]
    assert run_job(tmp_path / "corpus", "--input", write_lines(tmp_path / "d.json", lines))["kept"]
    other = [{"comments": [{"text": "a b"}]}, {"comments": [{"text": "c d"}]}]
    with pytest.raises(UserError, match="no column is known to hold the text"):
        run_job(tmp_path / "other", "--input", write_lines(tmp_path / "o.json", other))
