"""Files of shared/data/shapes: 60 reviews are read, or one line names the way out."""

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from tests.beam_jobs.dumps import run_job, shared_data

WAYS_OUT = {
    "elastic.json": r"text=_source\.body",
    "p_values.json": "to_json",
    "x.xlsx": "libreoffice --headless --convert-to csv",
    "denied.jsonl": "again",
    "zhang_polarity.csv": "columns",
}
SCALES = {
    "r_10.csv": "2-10",
    "r_100.csv": "20-100",
    "r_pct.csv": "20-100",
    "drugs.tsv": "1-10",
    **dict.fromkeys(("r_comma.csv", "r_half.csv", "r_sterne.csv", "r_unicode.csv"), "1-5"),
    **dict.fromkeys(("mongo.json", "mongo_asin.json", "decimal.parquet", "flipkart.csv"), "1-5"),
    "excel_de.csv": "1-5",
}
OTHERS = ("commas.json", "nested.parquet", "polarity-00000-of-00001.parquet", "p_columns.json")
COLUMNS = {
    "elastic.json": "text=_source.body,stars=_source.rating",
    "nested.parquet": "text=review.body,stars=review.rating",
    "excel_de.csv": "text=Kommentar",
    "sep.csv": "text=Kommentar",
    "flipkart.csv": "text=Summary,title=Review,stars=Rate",
}


@pytest.mark.parametrize("name", WAYS_OUT)
def test_the_way_out_is_told_in_one_line(tmp_path, name):
    with pytest.raises(UserError, match=f"{name}.*{WAYS_OUT[name]}") as told:
        run_job(tmp_path / "corpus", "--input", shared_data() / "shapes" / name)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", [*SCALES, *OTHERS, "steam.json"])
def test_a_file_is_read_whole_with_its_stars(tmp_path, name):
    path = shared_data() / "shapes" / name
    encoding = "cp1252" if name == "excel_de.csv" else "utf-8"
    options = ("--withhold-own", "false", "--encoding", encoding)
    result = run_job(tmp_path / "corpus", "--input", path, *options)
    unread = {reason: n for reason, n in result["dropped"].items() if reason != "no text"}
    assert (result["read"], unread) == (60, {})
    if name in SCALES:
        assert result["stars_scales"] == [SCALES[name]]
        assert not any(count for key, count in result["stars"].items() if key.endswith("none"))


@pytest.mark.parametrize("name", COLUMNS)
def test_the_columns_that_are_named_are_read(tmp_path, name):
    path = shared_data() / "shapes" / name
    options = ("--columns", COLUMNS[name], "--withhold-own", "false")
    assert run_job(tmp_path / "corpus", "--input", path, *options)["kept"] == 60
