"""A Parquet file of some hundred bytes takes neither the machine's memory nor its day."""

import io
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from amazon_electra.beam_jobs.reading.format import Layout
from amazon_electra.beam_jobs.reading.lines import Tally
from amazon_electra.beam_jobs.reading.parquet_records import Parquet
from tests.beam_jobs.dumps import rejects_of, run_job, texts_in
from tests.refusals import refuses

MEGABYTE = "a b " * 250_000


def pack(columns: dict[str, Any], **options: Any) -> io.BytesIO:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target, compression="zstd", **options)
    return target


def read_all(file: BinaryIO, *columns: str) -> list[Any]:
    mapping = tuple(zip(("text", "item_id"), columns or ("text",), strict=False))
    layout = Layout("parquet", mapping)
    return list(Parquet().read_rows(file, "d.parquet", layout, Tally(), 0, None))


def test_a_file_that_expands_too_far_is_refused():
    bomb = pack({"text": ["a " * 50_000_000]})
    assert len(bomb.getvalue()) < 20_000
    with refuses("d.parquet", "max_expansion"):
        read_all(bomb)


def test_damage_in_a_row_group_ends_the_job():
    content = bytearray(pack({"text": [f"{i} " * 50 for i in range(9_000)]}).getvalue())
    at = len(content) // 2
    content[at : at + 100] = bytes(100)
    with refuses("d.parquet"):
        read_all(io.BytesIO(content))


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
    pq.write_table(pa.table({"text": nested}), tmp_path / "text.parquet")
    items = pa.table({"text": ["a b", "c d", "e f", "g h"], "asin": nested})
    pq.write_table(items, tmp_path / "item.parquet")
    pq.write_table(pa.table({"text": ["a b"]}), tmp_path / "good.parquet")
    with refuses("text.parquet"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "text.parquet")
    files = (tmp_path / "item.parquet", tmp_path / "good.parquet")
    result = run_job(tmp_path / "corpus", "--input", *files)
    assert result["kept"] == 4  # "a b" is there twice
    assert result["notes"]["identifiers_left_out"] == 4
