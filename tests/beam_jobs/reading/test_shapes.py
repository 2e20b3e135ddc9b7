"""Files of shared/data/shapes: 60 reviews are read, or one line names the way out."""

import pytest

from beam_jobs.core.errors import UserError
from tests.beam_jobs.dumps import run_job, shared_data

WAYS_OUT = {
    "elastic.json": r"--columns text=_source\.body, or",
    "p_values.json": "orient='records'",
    "x.xlsx": "libreoffice --headless --convert-to csv",
    "denied.jsonl": "fetch it again",
    "zhang_polarity.csv": "no names of columns",
}
OTHERS = (
    *("commas.json", "decimal.parquet", "drugs.tsv", "mongo.json"),
    *(
        "nested.parquet",
        "polarity-00000-of-00001.parquet",
        "r_10.csv",
        "r_100.csv",
    ),
    *("r_comma.csv", "r_half.csv", "r_pct.csv", "r_sterne.csv", "r_unicode.csv"),
    *("p_columns.json", "steam.json"),
)
COLUMNS = {
    "elastic.json": "text=_source.body,stars=_source.rating",
    "nested.parquet": "text=review.body,stars=review.rating",
    "excel_de.csv": "text=Kommentar",
    "sep.csv": "text=Kommentar",
    "flipkart.csv": "text=Summary,title=Review,stars=Rate",
}


@pytest.mark.parametrize("name", [*WAYS_OUT, *OTHERS])
def test_a_file_is_read_whole_or_the_way_out_is_told(tmp_path, name):
    path = shared_data() / "shapes" / name
    if name in WAYS_OUT:
        with pytest.raises(UserError, match=WAYS_OUT[name]) as told:
            run_job(tmp_path / "corpus", "--input", path)
        assert "\n" not in str(told.value)
        return
    result = run_job(tmp_path / "corpus", "--input", path, "--withhold-own", "false")
    unread = {reason: n for reason, n in result["dropped"].items() if reason != "no text"}
    assert (result["read"], unread) == (60, {})


@pytest.mark.parametrize("name", COLUMNS)
def test_the_columns_that_are_named_are_read(tmp_path, name):
    path = shared_data() / "shapes" / name
    options = ("--columns", COLUMNS[name], "--withhold-own", "false")
    assert run_job(tmp_path / "corpus", "--input", path, *options)["kept"] == 60
