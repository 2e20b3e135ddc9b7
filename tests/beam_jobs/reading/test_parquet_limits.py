"""A Parquet file of some hundred bytes takes neither the machine's memory nor its day."""

import io
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_jobs.job.errors import UserError
from beam_jobs.job.parquet import pages as parquet_pages
from beam_jobs.job.parquet.compact import INT_32, CompactReader
from beam_jobs.reading import parquet_records
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.lines import Tally
from tests.beam_jobs.dumps import rejects_of, run_job, texts_in

MEGABYTE = "a b " * 250_000
BOMBS = {
    "one text in every row": lambda: {"text": [MEGABYTE] * 300},
    "one text of a page": lambda: {"text": ["a " * 50_000_000]},
    "an item in every row": lambda: {"text": ["ok"] * 300, "asin": [MEGABYTE] * 300},
    "a view in every row": lambda: {"text": pa.array([MEGABYTE] * 300, pa.string_view())},
    "bytes in every row": lambda: {
        "text": pa.array([MEGABYTE.encode()] * 300, pa.binary(1_000_000))
    },
}


@pytest.mark.parametrize("make_columns", BOMBS.values(), ids=BOMBS)
def test_a_file_that_expands_too_far_is_refused(tmp_path, make_columns):
    bomb = tmp_path / "bomb.parquet"
    pq.write_table(pa.table(make_columns()), bomb, compression="zstd")
    assert bomb.stat().st_size < 20_000
    with pytest.raises(UserError, match=r"bomb\.parquet expands to more than 200 times its size"):
        run_job(tmp_path / "corpus", "--input", bomb)


def write_deltas(path: Path, encoding: str, texts: list[str]) -> None:
    pq.write_table(
        pa.table({"text": texts}),
        path,
        compression="zstd",
        use_dictionary=False,
        column_encoding={"text": encoding},
    )


def test_texts_as_differences_are_read_within_the_limits(tmp_path):
    for encoding in ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"):
        texts = [f"text number {i} of many" for i in range(5_000)]
        write_deltas(tmp_path / "d.parquet", encoding, texts)
        result = run_job(tmp_path / encoding, "--input", tmp_path / "d.parquet")
        assert (result["read"], result["kept"]) == (5_000, 5_000)
    write_deltas(tmp_path / "bomb.parquet", "DELTA_BYTE_ARRAY", [MEGABYTE] * 300)
    with pytest.raises(UserError, match="expands to more than 200 times"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "bomb.parquet")


def encode_number(value: int, width: int | None = None) -> bytes:
    """A footer's number, stretched to so many bytes with zeros that change nothing."""
    value, content = value * 2, b""
    while value >= 128 or (width and len(content) + 1 < width):
        content += bytes([value % 128 + 128])
        value //= 128
    return content + bytes([value])


def patch_footer(path: Path, before: int, after: int) -> None:
    """Write another number over one, wherever it stands in the footer."""
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    old = encode_number(before)
    assert content[start:].count(old)
    footer = content[start:].replace(old, encode_number(after, len(old)))
    path.write_bytes(content[:start] + footer)


@contextmanager
def counted_memory():
    """Arrow's memory inside the block."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def read_all(path: Path) -> list[Any]:
    layout = Layout("parquet", (("text", "text"),))
    with path.open("rb") as file:
        return list(parquet_records.read_rows(file, layout, Tally(), 0, None, 200, path.name))


def test_a_footer_that_understates_its_pages_is_refused_before_they_are_unpacked(tmp_path):
    bomb = tmp_path / "bomb.parquet"
    pq.write_table(pa.table(BOMBS["one text of a page"]()), bomb, compression="zstd")
    size = pq.read_metadata(bomb).row_group(0).column(0).total_uncompressed_size
    patch_footer(bomb, size, 1_000)
    assert pq.read_metadata(bomb).row_group(0).column(0).total_uncompressed_size == 1_000
    with counted_memory() as memory, pytest.raises(UserError, match="expands to more than 200 t"):
        read_all(bomb)
    assert memory.max_memory() < 1_000_000


def test_a_footer_that_says_too_much_is_refused(tmp_path):
    many = tmp_path / "many.parquet"
    rows = 1_100_000
    pq.write_table(pa.table({"text": ["a b"] * rows}), many, row_group_size=rows)
    patch_footer(many, rows, 100_000_000)
    with pytest.raises(UserError, match="expands to more than 200 times"):
        read_all(many)
    large = tmp_path / "large.parquet"
    pq.write_table(pa.table({"text": ["some text" * 30]}), large)
    size = pq.read_metadata(large).row_group(0).column(0).total_compressed_size
    patch_footer(large, size, 8_000)
    with pytest.raises(UserError, match=r"not a whole Parquet file \(its columns are larger than"):
        run_job(tmp_path / "corpus", "--input", large)


def test_no_byte_of_a_footer_ends_the_process():
    """pyarrow does where it is asked for a column whose statistics contradict each other."""
    target = io.BytesIO()
    pq.write_table(pa.table({"text": ["a b", None, "c d"]}), target)
    content = target.getvalue()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    layout, outcomes = Layout("parquet", (("text", "text"),)), Counter()
    for at in range(start, len(content)):
        for change in (1, 16, 255):
            broken = io.BytesIO(content[:at] + bytes([content[at] ^ change]) + content[at + 1 :])
            try:
                parquet_records.read_column_names(broken)
                rows = parquet_records.read_rows(broken, layout, Tally(), 0, None, 200, "d")
                outcomes[len(list(rows))] += 1
            except (UserError, pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
                outcomes[type(error)] += 1
    assert outcomes[3] > 100
    assert outcomes[OSError] + outcomes[pa.ArrowInvalid] > 100


def test_a_header_is_read_as_arrow_reads_it():
    for content, expected in (
        (b"\x15\x04\x00", {(1,): 2}),
        (b"\x05\x02\x04\x00", {(1,): 2}),
        (b"\x15\xff\xff\xff\xff\x0f\x00", {(1,): -(2**31)}),
        (b"\x18\x03abc\x15\x01\x11\x16\x08\x00", {(2,): -1}),
        (b"\x5c\x15\x04\x00\x5c\x25\x06\x00\x00", {(5, 1): 2, (10, 2): 3}),
        (b"\x19\x2c\x15\x02\x00\x15\x04\x00\x00", {(1, 32768, 1): 1, (1, 32769, 1): 2}),
    ):
        reader = CompactReader(content, INT_32)
        reader.read_struct()
        assert (reader.numbers, reader.at) == (expected, len(content)), content
    twice, sets, longer = b"\x15\x04\x05\x02\x06\x00", b"\x1a\x15\x04\x00", b"\x15" + b"\xff" * 11
    large = b"\x15\x80\x80\x80\x80\x70\x00"
    for broken in (b"\x1c" * 100, twice, sets, longer, large, b"\x1d\x00"):
        with pytest.raises(pa.ArrowInvalid):
            CompactReader(broken, INT_32).read_struct()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_the_headers_of_all_pages_are_found(tmp_path, version, compression):
    texts = [f"text number {i % 700} " * (i % 9) for i in range(20_000)]
    table = pa.table({"text": texts, "words": [text.split()[:3] for text in texts]})
    pq.write_table(
        table,
        tmp_path / "d.parquet",
        data_page_version=version,
        compression=compression,
        data_page_size=5_000,
        dictionary_pagesize_limit=4_000,
        write_statistics=True,
        row_group_size=7_000,
    )
    metadata = pq.read_metadata(tmp_path / "d.parquet")
    with (tmp_path / "d.parquet").open("rb") as file:
        groups = parquet_pages.read_row_groups(file, metadata)
        assert [group.rows for group in groups] == [7_000, 7_000, 6_000]
        for group, found in enumerate(groups):
            for i, chunk in enumerate(found.chunks):
                said = metadata.row_group(group).column(i)
                assert (chunk.packed, chunk.values) == (said.total_compressed_size, said.num_values)
                pages = parquet_pages.read_pages(file, chunk)
                assert pages.values >= chunk.values
                assert 0.8 < pages.unpacked / said.total_uncompressed_size < 1
                assert not pages.has_deltas


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
