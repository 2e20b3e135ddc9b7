"""Columns are known by name, by rule or by what the user says; those not used are listed."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.beam_jobs.reading import fields
from tests.beam_jobs.dumps import rows_of, run_job, texts_in, write_lines
from tests.refusals import refuses


def test_a_name_with_a_comma_is_in_quotes(tmp_path):
    rows = ['"good, or bad?",points', '"It works, all of it",5', '"It broke, all of it",1']
    dump = write_lines(tmp_path / "d.csv", rows)
    columns = '"text=good, or bad?",stars=points'
    run_job(tmp_path / "corpus", "--input", dump, "--columns", columns)
    assert sorted(texts_in(tmp_path / "corpus")) == ["It broke, all of it", "It works, all of it"]
    for mistake in ("text=good, or bad?", '"text=good, or', 'text="good, or bad?"'):
        with refuses("columns"):
            fields.parse_column_overrides(mistake)


def test_columns_are_recognized_by_rule_and_the_unused_ones_listed(tmp_path):
    rows = [
        "review_title,review_text,review_star,store_rating,product,order_id,Created at",
        'Fine,"It works, all of it",5.0 out of 5 stars,3,Kettle,17,2026-01-02',
        'Bad,"It broke, all of it",1.0 out of 5 stars,3,Kettle,18,2026-01-02',
    ]
    dump = write_lines(tmp_path / "d.csv", rows)
    result = run_job(tmp_path / "corpus", "--input", dump)
    assert sorted(row["stars"] for row in rows_of(tmp_path / "corpus")) == [1, 5]
    assert result["columns"] == {
        "used": {
            "item_id": ["product"],
            "stars": ["review_star"],
            "text": ["review_text"],
            "title": ["review_title"],
        },
        "unused": ["Created at", "order_id", "store_rating"],
    }


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *(("Review Star", "stars"), ("reviewStars", "stars"), ("review-rating", "stars")),
        *(("reviews.score", "stars"), ("Overall", "stars"), ("Review_Subject", "title")),
        *(("HEADLINE", "title"), ("Review Text", "text"), ("helpful_votes", "")),
        *(("product_rating_count", ""), ("label", ""), ("_score", "")),
    ],
)
def test_a_column_is_known_without_separators_and_prefix(name, field):
    found = {field: fields.find_column(field, {name}) for field in fields.FIELDS}
    assert found == dict.fromkeys(fields.FIELDS, "") | ({field: name} if field else {})


NAMES = (  # of a table, then those of its text, its stars and its title
    ("Review Message,Rate", "Review Message|Rate"),
    ("Rate,Review,Summary", "Summary|Rate|Review"),
    (
        "Bewertungstitel,Bewertungstext,Kundenbewertung",
        "Bewertungstext|Kundenbewertung|Bewertungstitel",
    ),
    ("Título da avaliação,Texto da avaliação,Nota", "Texto da avaliação|Nota|Título da avaliação"),
    ("評価,タイトル,レビュー本文", "レビュー本文|評価|タイトル"),
    ("review_comment_message,review_score", "review_comment_message|review_score"),
    (
        "title,rating,review_title,review_text,review_rating",
        "review_text|review_rating|review_title",
    ),
)


@pytest.mark.parametrize(("columns", "known"), NAMES)
def test_names_that_people_use(columns, known):
    """In their languages; of Olist; and with columns of a product before those of its review."""
    mapping = dict(zip(("text", "stars", "title"), known.split("|"), strict=False))
    assert fields.map_columns(columns.split(","), {}, "a file") == mapping


SHOPS = [
    {
        "shop": "north",
        "products": [
            {
                "asin": f"B{k}{n}",
                "rating": 3.3,
                "reviews": [
                    {"id": f"{k}-{n}-{i}", "text": f"Text {k} {n} {i}.", "rating": i + 1}
                    for i in range(n)
                ],
            }
            for n in range(4)
        ],
    }
    for k in range(3)
]
PATHS = "text=products[].reviews[].text,item_id=products[].asin"


def write_shops(folder, shape):
    path = folder / f"{shape}.json"
    if shape == "lines":
        return write_lines(path, SHOPS)
    if shape == "objects":
        path.write_text("".join(json.dumps(shop, indent=1) for shop in SHOPS))
    elif shape == "one object":
        path.write_text(json.dumps({"products": [p for shop in SHOPS for p in shop["products"]]}))
    else:
        pq.write_table(pa.Table.from_pylist(SHOPS), path, row_group_size=2)
    return path


@pytest.mark.parametrize("shape", ["lines", "objects", "one object", "parquet"])
def test_a_record_gives_the_reviews_of_its_lists(tmp_path, shape):
    """Their stars are their own, not those of the product."""
    dump = write_shops(tmp_path, shape)
    result = run_job(tmp_path / "corpus", "--input", dump, "--columns", PATHS)
    texts = [f"Text {k} {n} {i}." for k in range(3) for n in range(4) for i in range(n)]
    assert sorted(texts_in(tmp_path / "corpus")) == texts
    assert (result["read"], result["kept"]) == (18, 18)
    assert (
        sorted(row["stars"] for row in rows_of(tmp_path / "corpus")) == [1] * 9 + [2] * 6 + [3] * 3
    )
    assert len({row["review_id"] for row in rows_of(tmp_path / "corpus")}) == 18


def test_lists_are_read_only_by_their_names_and_one_within_the_other(tmp_path):
    dump = write_shops(tmp_path, "lines")
    with refuses("products[].reviews[].text"):
        run_job(tmp_path / "corpus", "--input", dump)
    records = [{"reviews": [{"text": "a b"}], "marks": [{"stars": 5}]}]
    dump = write_lines(tmp_path / "two.json", records)
    columns = "text=reviews[].text,stars=marks[].stars"
    with refuses("marks[]"):
        run_job(tmp_path / "corpus", "--input", dump, "--columns", columns)


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_reviews_in_lists_of_lists_are_read(tmp_path, kind):
    pages = [[{"text": f"Text {n} {i}.", "rating": 1 + i} for i in range(4)] for n in range(3)]
    dump = tmp_path / f"d.{kind}"
    if kind == "json":
        write_lines(dump, [{"pages": pages}])
    else:
        pq.write_table(pa.Table.from_pylist([{"pages": pages}]), dump)
    run_job(tmp_path / "a", "--input", dump, "--columns", "text=pages[][].text")
    found = [(" ".join(row["sentences"]), row["stars"]) for row in rows_of(tmp_path / "a")]
    assert sorted(found) == [(f"Text {n} {i}.", 1 + i) for n in range(3) for i in range(4)]
