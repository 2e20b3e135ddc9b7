"""Rows of a table that are no reviews are left out, with a reason."""

import pytest

from amazon_electra.beam_jobs.reading.delimited import DESCRIPTION
from tests.beam_jobs.dumps import read_as_scored, run_job, text_of

ROWS = "".join(f'{i},"{text_of(i)}",{i % 5 + 1}\n' for i in range(40))
DESCRIBED = {
    "qualtrics": 'ID,"In your words,\nwhat did you like?",How many?\n'
    '"{""ImportId"": ""_id""}","{""ImportId"": ""QID1""}","{""ImportId"": ""QID2""}"\n',
    "types": "integer,string,float\n",
    "surveymonkey": ",Open-Ended Response,Response\n",
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_rows_that_describe_the_columns_are_left_out(tmp_path, name):
    dump = tmp_path / "survey.csv"
    dump.write_text("id,text,stars\n" + DESCRIBED[name] + ROWS)
    result = run_job(tmp_path / "corpus", "--input", dump)
    count = 2 if name == "qualtrics" else 1
    assert (result["read"], result["kept"]) == (40 + count, 40)
    assert result["dropped"] == {DESCRIPTION: count}
    assert result["stars_scale"] == "1-5"
    twice = tmp_path / "twice.csv"
    twice.write_text(dump.read_text() + dump.read_text())
    assert run_job(tmp_path / "twice", "--input", twice)["dropped"][DESCRIPTION] == 2 * count

    reasons = read_as_scored(dump, tmp_path).reasons
    assert reasons == [DESCRIPTION] * count + [None] * 40


def test_a_delimiter_at_the_end_of_each_row_is_none(tmp_path):
    dump = tmp_path / "own.csv"
    dump.write_text("id,text,stars\n" + ROWS.replace("\n", ",\n"))
    assert run_job(tmp_path / "corpus", "--input", dump)["kept"] == 40
