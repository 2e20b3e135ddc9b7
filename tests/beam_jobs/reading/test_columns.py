"""Columns are known by name, by rule or by what the user says; those not used are listed."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.core.errors import UserError
from beam_jobs.reading import fields
from tests.beam_jobs.dumps import rows_of, run_job, shared_data, texts_in, write_lines
from tests.beam_jobs.reading.three_reviews import REVIEWS


def test_classes_and_row_numbers_are_no_stars(tmp_path):
    pq.write_table(
        pa.table({"label": [0, 1], "content": ["awful", "great"]}), tmp_path / "polarity.parquet"
    )
    (tmp_path / "pandas.csv").write_text(",review\n1,fine words\n4,more words\n")
    run_job(tmp_path / "corpus", "--input", tmp_path / "polarity.parquet", tmp_path / "pandas.csv")
    assert [row["stars"] for row in rows_of(tmp_path / "corpus")] == [None] * 4


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
    assert set(texts_in(tmp_path / "corpus")) == {" ".join(text.split()) for text, _, _ in REVIEWS}
    assert sorted(row["stars"] for row in rows_of(tmp_path / "corpus")) == [1, 3, 5]


def test_a_name_with_a_comma_is_in_quotes(tmp_path):
    rows = ['"good, or bad?",points', '"It works, all of it",5', '"It broke, all of it",1']
    dump = write_lines(tmp_path / "d.csv", rows)
    columns = '"text=good, or bad?",stars=points'
    run_job(tmp_path / "corpus", "--input", dump, "--columns", columns)
    assert sorted(texts_in(tmp_path / "corpus")) == ["It broke, all of it", "It works, all of it"]
    for mistake in ("text=good, or bad?", '"text=good, or', 'text="good, or bad?"'):
        with pytest.raises(UserError, match="with a comma in the name"):
            fields.parse_column_overrides(mistake)


def test_a_file_without_a_text_column_is_the_users_mistake(tmp_path):
    (tmp_path / "d.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="--columns text="):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d.csv")


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


@pytest.mark.parametrize(
    ("columns", "mapping"),
    [
        ("Review Message,Rate", {"text": "Review Message", "stars": "Rate"}),
        ("comment_content,score", {"text": "comment_content", "stars": "score"}),
        ("Rate,Review,Summary", {"text": "Summary", "title": "Review", "stars": "Rate"}),
        (
            "BewertungsNr,Bewertung,Überschrift,Kommentartext",
            {"text": "Kommentartext", "title": "Überschrift", "stars": "Bewertung"},
        ),
        ("Note,Titre,Commentaire", {"text": "Commentaire", "title": "Titre", "stars": "Note"}),
        (
            "Puntuación,Título,Reseña",
            {"text": "Reseña", "title": "Título", "stars": "Puntuación"},
        ),
        ("Voto,Titolo,Recensione", {"text": "Recensione", "title": "Titolo", "stars": "Voto"}),
        ("Nota,Título,Comentário", {"text": "Comentário", "title": "Título", "stars": "Nota"}),
    ],
)
def test_names_that_people_use(columns, mapping):
    assert fields.map_columns(columns.split(","), {}, "a file") == mapping


def test_shapes_with_names_of_their_own(tmp_path):
    for name, stars in (("flipkart.csv", "1-5"), ("excel_de.csv", "1-5")):
        file = shared_data() / "shapes" / name
        result = run_job(tmp_path / name, "--input", file, "--encoding", "cp1252")
        assert (result["read"], result["kept"], result["stars_scales"]) == (60, 60, [stars])
        assert not any(count for key, count in result["stars"].items() if key.endswith("none"))
