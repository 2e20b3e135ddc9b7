"""Every published format, in every packing, gives the same reviews; the tables in
beam_jobs/reading/README.md are the contract.
"""

import bz2
import gzip
import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.lines import Tally
from tests.beam_jobs.dumps import (
    look_at,
    review,
    rows_of,
    run_job,
    shared_data,
    texts_in,
    write_lines,
)
from tests.refusals import refuses

REVIEWS = [
    ("It broke. Never again!", "Sad", 1),
    ('He said "wow", twice; then left.', "A, b", 5),
    ("Three lines\nof text\nhere. Café.", "", 3),
]
SENTENCES = {
    "Sad. It broke. Never again!",
    'A, b. He said "wow", twice; then left.',
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
            {},
            {(2, "Sad. It broke. Never again!"), (4, "all text")},
        ),
        (
            "__label__2 I love this: it works\n__label__1 No title here\n",
            {},
            {(4, "I love this: it works"), (2, "No title here")},
        ),
        (
            "".join(f"__label__{n} T: text {n}\n" for n in range(1, 6)) + "__label__7 T: text 7\n",
            {},
            {(None, f"T. text {n}") for n in (1, 2, 3, 4, 5, 7)},
        ),
        (
            "".join(f"__label__{n} T: text {n}\n" for n in range(1, 6)),
            {},
            {(n, f"T. text {n}") for n in range(1, 6)},
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


def dump_csv(texts, header):
    rows = [f'"{text.replace(chr(34), chr(34) * 2)}"\n' for text in texts]
    return "".join([header, *rows])


def dump_parquet(texts):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array([text.encode() for text in texts])}), buffer)
    return buffer.getvalue()


SHAPES = {
    "JSON with tabs and line ends in strings": lambda texts: "".join(
        json.dumps({"text": t}).replace("\\n", "\n").replace("\\t", "\t") + "\n" for t in texts
    ).encode(),
    "blank lines before the header": lambda texts: dump_csv(texts, "\r\n\n\ntext\n").encode(),
    "escaped quotes of Spark and MySQL": lambda texts: "".join(
        ["text,stars\n", *('"{}",5\n'.format(text.replace('"', '\\"')) for text in texts)]
    ).encode(),
    "one column": lambda texts: dump_csv(texts, '"Review Text"\n').encode(),
    "bytes in Parquet": dump_parquet,
    "DynamoDB's scan": lambda texts: json.dumps(
        {"Items": [{"text": {"S": t}, "stars": {"N": "5"}} for t in texts], "Count": 20}
    ).encode(),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_other_programs(tmp_path, name):
    texts = [f'It "works" {i}.\tTabs,\nand lines.' for i in range(10)]
    texts += [f'"Fine" {i}, all "of it"' for i in range(10)]
    (tmp_path / "d").write_bytes(SHAPES[name](texts))
    made = run_job(tmp_path / "corpus", "--input", tmp_path / "d")
    assert (made["read"], made["kept"]) == (20, 20)
    assert set(texts_in(tmp_path / "corpus")) == {" ".join(text.split()) for text in texts}


def test_halves_of_characters_and_cut_ones_are_no_other_encoding(tmp_path):
    """As programs in Java write them, and databases that keep so many bytes."""
    halves, cut = b"\xed\xa0\xbd\xed\xb8\x80", b"\xf0\x9f\x98"
    rows = [b'{"text": "Text %d %b"}' % (i, halves if i % 2 else cut) for i in range(9)]
    made = run_job(tmp_path / "c", "--input", write_lines(tmp_path / "d.json", rows))
    assert (made["kept"], made["notes"]) == (9, {"decoded_as_cp1252": 5})
    assert {t for t in texts_in(tmp_path / "c") if "😀" in t} == {
        f"Text {i} 😀" for i in (1, 3, 5, 7)
    }


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Очень хороший товар", "cp1251"),
        ("这个产品很好", "gb18030"),
        ("Très bon, déjà reçu", "mac_roman"),
    ],
)
def test_an_encoding_that_is_not_cp1252_is_asked_for(tmp_path, text, encoding):
    records = [json.dumps({"text": f"{text} {i}"}, ensure_ascii=False) for i in range(9)]
    dump = write_lines(tmp_path / "d.json", [record.encode(encoding) for record in records])
    with refuses("d.json", "encoding"):
        run_job(tmp_path / "a", "--input", dump)
    run_job(tmp_path / "b", "--input", dump, "--encoding", encoding)
    assert set(texts_in(tmp_path / "b")) == {f"{text} {i}" for i in range(9)}


COUNTS = {
    "mcauley_2018/AMAZON_FASHION_5.json.gz": (3176, {"no text": 16}),
    "mcauley_2014/Cell_Phones_and_Accessories_5_truncated_array.json.gz": (
        4777,
        {"broken JSON": 1},
    ),
    "customer_reviews/1984.csv.gz": (1679, {}),
    "fasttext/test.ft.txt": (2204, {}),
    "other/amazon_alexa.tsv": (3150, {}),
    "other/fine_foods_not_utf8.csv": (200, {}),
    "other/snap_key_value.txt": (1000, {}),
}


@pytest.mark.parametrize("name", COUNTS)
def test_real_files(tmp_path, name):
    read, dropped = COUNTS[name]
    result = run_job(tmp_path, "--input", shared_data() / "reviews" / name)
    assert result["read"] == read
    assert {reason: result["dropped"].get(reason) for reason in dropped} == dropped


@pytest.mark.parametrize(("name", "indent"), [("d.json", 1), ("d.json.gz", None)])
def test_an_object_around_the_reviews_is_unwrapped(tmp_path, indent, name):
    reviews = [review(number, images=[{"url": "x"}, {"url": "y"}]) for number in range(2_000)]
    wrapped = {"asin": "B0", "meta": {"tags": ["a"]}, "reviews": reviews}
    file = look_at(write_lines(tmp_path / name, [json.dumps(wrapped, indent=indent)]))
    assert dict(file.layout.mapping)["text"] == "reviewText"
    units = work_units.cut_file(file, 20_000, str(tmp_path / "cuts"))
    assert len(units) > 5
    items = [item for unit in units for item in work_units.read_records(unit, Tally())]
    assert [item[1] for item in items] == reviews


def test_of_several_lists_the_one_with_texts_is_read(tmp_path):
    record = {"data": {"page": [{"n": 1}], "reviews": [review(0), review(1)]}, "total": 2}
    dump = write_lines(tmp_path / "d.json", [record])
    assert run_job(tmp_path / "corpus", "--input", dump)["kept"] == 2
    with refuses("data.reviews"):
        run_job(tmp_path / "named", "--input", dump, "--records", "reviews")
    record["data"]["page"] = [review(2)]
    with refuses("d.json", "data.reviews"):
        run_job(tmp_path / "two", "--input", write_lines(dump, [record]))
    result = run_job(tmp_path / "chosen", "--input", dump, "--records", "data.reviews")
    assert (result["read"], result["kept"]) == (2, 2)
