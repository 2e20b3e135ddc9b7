"""Files of shared/data/shapes whose columns the user names; as they are, they are read by
tests/flows/dumps/test_preview.py.
"""

import pytest

from tests.beam_jobs.dumps import run_job, shared_data

COLUMNS = {
    "elastic.json": "text=_source.body,stars=_source.rating",
    "nested.parquet": "text=review.body,stars=review.rating",
    "excel_de.csv": "text=Kommentar",
    "sep.csv": "text=Kommentar",
    "flipkart.csv": "text=Summary,title=Review,stars=Rate",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_columns_that_are_named_are_read(tmp_path, name):
    path = shared_data() / "shapes" / name
    options = ("--columns", COLUMNS[name], "--withhold-own", "false")
    assert run_job(tmp_path / "corpus", "--input", path, *options)["kept"] == 60
