"""A Parquet file of some hundred bytes takes neither the machine's memory nor its day."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.job.errors import UserError
from tests.beam_jobs.dumps import rejects_of, run_job, texts_in

MEGABYTE = "a b " * 250_000
BOMBS = {
    "one text in every row": {"text": [MEGABYTE] * 300},
    "one text of a page": {"text": ["a " * 50_000_000]},
    "an item in every row": {"text": ["ok"] * 300, "asin": [MEGABYTE] * 300},
}


@pytest.mark.parametrize("columns", BOMBS.values(), ids=BOMBS)
def test_a_file_that_expands_too_far_is_refused(tmp_path, columns):
    bomb = tmp_path / "bomb.parquet"
    pq.write_table(pa.table(columns), bomb, compression="zstd")
    assert bomb.stat().st_size < 20_000
    with pytest.raises(UserError, match=r"bomb\.parquet expands to more than 200 times its size"):
        run_job(tmp_path / "corpus", "--input", bomb)


def test_rows_that_are_too_long_are_rejected_alone(tmp_path):
    texts = ["first of all", "long " * 300, "the last one"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "d.parquet")
    result = run_job(
        tmp_path / "corpus", "--input", tmp_path / "d.parquet", "--max-record-bytes", 1_000
    )
    assert sorted(texts_in(tmp_path / "corpus")) == ["first of all", "the last one"]
    assert result["dropped"] == {"record too long": 1}
    [reject] = rejects_of(tmp_path / "corpus")
    assert (reject["line"], reject["bytes"]) == (2, 1_500)


def test_nested_columns_are_counted_unread(tmp_path):
    nested = [[MEGABYTE] * 100, None, ["a"], ["a"]]
    texts = pa.table({"text": nested})
    pq.write_table(texts, tmp_path / "text.parquet")
    pq.write_table(pa.table({"text": ["a b"]}), tmp_path / "good.parquet")
    files = (tmp_path / "text.parquet", tmp_path / "good.parquet")
    result = run_job(tmp_path / "one", "--input", *files)
    assert (result["kept"], result["dropped"]) == (1, {"text is not a string": 4})
    items = pa.table({"text": ["a b", "c d", "e f", "g h"], "asin": nested})
    pq.write_table(items, tmp_path / "item.parquet")
    files = (tmp_path / "item.parquet", tmp_path / "good.parquet")
    result = run_job(tmp_path / "two", "--input", *files)
    assert result["dropped"] == {"identifier is nested or too long": 4}


@pytest.mark.parametrize("rows", [1, 5_000])
def test_many_texts_of_few_values_are_read_whole(tmp_path, rows):
    values = ["one text", None, "another text", "third text"]
    texts = [values[i % 4] for i in range(rows * 4)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "d.parquet", row_group_size=3_000)
    result = run_job(tmp_path / "corpus", "--input", tmp_path / "d.parquet")
    assert (result["read"], result["kept"]) == (4 * rows, 3)
    assert result["dropped"]["no text"] == rows
