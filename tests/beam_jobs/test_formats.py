"""Every published format, in every packing, gives the same reviews; the table in formats/fields.py is the contract."""

import base64
import bz2
import gzip
import hashlib
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.command import UserMistake
from tests.beam_jobs.dumps import rejects_of, review, rows_of, run_job, shared_data, texts_in, write_lines

REVIEWS = [
    ("It broke. Never again!", "Sad", 1),
    ('He said "wow", twice; then left.', "A, b", 5),
    ("Three lines\nof text\nhere. Café.", "", 3),
]
SENTENCES = {"It broke. Never again!", 'He said "wow", twice; then left.', "Three lines of text here. Café."}


def mcauley(rows: list[tuple[str, str, int]]) -> list[dict]:
    return [{"reviewText": text, "summary": title, "overall": float(stars)} for text, title, stars in rows]


def lines(records: list[str]) -> str:
    return "".join(record + "\n" for record in records)


def csv_text(delimiter: str) -> str:
    rows = [["review_id", "star_rating", "review_headline", "review_body"]]
    rows += [["R1", str(stars), title, text] for text, title, stars in REVIEWS]
    return lines([delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows])


FORMS = {
    "2018.json": lines([json.dumps(r) for r in mcauley(REVIEWS)]),
    "2014.json": lines([json.dumps({"helpful": [0, 0]} | r) + "\r" for r in mcauley(REVIEWS)]),
    "2023.jsonl": lines([json.dumps({"rating": s, "title": t, "text": x, "images": []}) for x, t, s in REVIEWS]),
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
        f"product/productId: B1\nreview/score: {s}.0\nreview/summary: {t}\nreview/text: {x}\n" for x, t, s in REVIEWS
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_format_is_found_out_and_read(tmp_path, name):
    (tmp_path / name).write_text(FORMS[name], newline="")
    result = run_job(tmp_path / "corpus", "--input", tmp_path / name)
    assert (result["read"], result["kept"], result["dropped"]) == (3, 3, {})
    assert set(texts_in(tmp_path / "corpus")) == SENTENCES
    assert sorted(row["stars"] for row in rows_of(tmp_path / "corpus")) == [1, 3, 5]


def test_fasttext_knows_polarity_only(tmp_path):
    (tmp_path / "test.ft.txt").write_text("__label__1 Sad: It broke. Never again!\n__label__2 all text\n")
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "test.ft.txt")
    assert result["notes"] == {"stars_from_polarity": 2}
    rows = rows_of(tmp_path / "corpus")
    assert {(row["stars"], *row["sentences"]) for row in rows} == {(2, "It broke.", "Never again!"), (4, "all text")}


def test_parquet_with_named_columns(tmp_path):
    table = pa.table({"body": [t for t, _, _ in REVIEWS], "points": [s for _, _, s in REVIEWS], "other": [1, 2, 3]})
    pq.write_table(table, tmp_path / "mine.parquet", row_group_size=2)
    run_job(tmp_path / "corpus", "--input", tmp_path / "mine.parquet", "--columns", "text=body,stars=points")
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
        path.write_bytes(packers[path.suffix](content[:half]) + packers[path.suffix](content[half:]))


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
    given = [5, 5.0, "5", "5.0", "5.0 out of 5 stars", "4 stars", 4.5, "NaN", None, 0, 6, True, [5], "very good"]
    write_lines(tmp_path / "d.json", [review(i, overall=stars) for i, stars in enumerate(given)])
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "d.json")
    stars = {row["sentences"][0]: row["stars"] for row in rows_of(tmp_path / "corpus")}
    assert [stars[f"Item {i} arrived."] for i in range(len(given))] == [5] * 5 + [4] + [None] * 8
    assert result["notes"]["stars_unknown"] == 8


def test_a_file_without_a_text_column_is_the_users_mistake(tmp_path):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserMistake, match="--columns text="):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.csv")


def test_rejects_name_file_line_reason_and_bytes(tmp_path):
    (tmp_path / "d.csv").write_text('text,stars\n"two\nlines",5\nonly one field\n"good",4\na,b,c\n')
    run_job(tmp_path / "corpus", "--input", tmp_path / "d.csv")
    rejects = rejects_of(tmp_path / "corpus")
    assert [(r["line"], r["reason"], r["bytes"]) for r in rejects] == [(4, "fewer columns", 14), (6, "more columns", 5)]
    line = (tmp_path / "d.csv").read_bytes().split(b"\n")[rejects[0]["line"] - 1]
    assert rejects[0]["sha256"] == hashlib.sha256(line).hexdigest()
    assert rejects[0]["file"] == str(tmp_path / "d.csv")


NAMED = "Reviewer Q. Namedthus"
RELEASES = {
    "2018.json": [review(1, reviewerName=NAMED, reviewerID="A2USERID"), '{"reviewerID": "A2USERID", "reviewerName": "'],
    "list.json": [f'["{NAMED}", "A2USERID"]', review(2, reviewerName=NAMED, reviewerID="A2USERID")],
    "snap.txt": [
        f"review/userId: A2USERID\nreview/profileName: {NAMED}\nreview/text: fine words\n",
        f"{NAMED} A2USERID",
    ],
    "reviews.csv": ["text,user_id,name", f"good words,A2USERID,{NAMED}", f"A2USERID,{NAMED}"],
    "python.json": ["{'reviewerID': 'A2USERID', 'reviewText': 'x'}", f"{{'reviewerID': 'A2USERID', '{NAMED}'"],
}


@pytest.mark.parametrize("name", RELEASES)
def test_nothing_of_a_reviewer_leaves_the_job_by_default(tmp_path, name):
    """Neither from records that are read nor from those that cannot be; with the option the raw bytes are there."""
    dump = write_lines(tmp_path / name, RELEASES[name])
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert result["kept"] == 1
    assert sum(result["dropped"].values()) == 1
    assert not traces_in(tmp_path / "corpus")
    run_job(tmp_path / "raw", "--input", dump, "--keep_raw_rejects", "true")
    assert traces_in(tmp_path / "raw") == {"0000-00000.jsonl"}


def traces_in(folder: Path) -> set[str]:
    """Files that hold the reviewer's name or id, as they stand, in base64 or in a column of Parquet."""
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
    "mcauley_2014/Cell_Phones_and_Accessories_5_truncated_array.json.gz": (4777, {"broken JSON": 1}),
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
    result = run_job(tmp_path, "--input", shared_data() / "reviews" / name, "--punkt_sample_bytes", 50_000)
    assert result["read"] == read
    assert {reason: result["dropped"].get(reason) for reason in dropped} == dropped
