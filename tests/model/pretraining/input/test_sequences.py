import pyarrow.parquet as pq
import pytest

from amazon_electra.model.pretraining.input.sequences import Shards, Stream
from tests.model.synthetic_shards import write_shards
from tests.refusals import refuses


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return Shards.open(write_shards(tmp_path_factory.mktemp("shards"), sequences=300, shards=3))


def rows_as_tuples(rows):
    return [tuple(ids[:n]) for ids, n in zip(rows.input_ids, rows.lengths, strict=True)]


def take(stream, position, size, count):
    batches = stream.iterate_batches(position, size)
    return [row for _ in range(count) for row in rows_as_tuples(next(batches))]


def test_every_sequence_once_an_epoch(shards):
    stream = Stream(shards, seed=0, window_sequences=64)
    written = sorted(
        tuple(ids)
        for path in sorted(shards.folder.glob("*.parquet"))
        for ids in pq.read_table(path)["input_ids"].to_pylist()
    )
    first, second = (take(stream, start, 50, 6) for start in (0, 300))
    assert sorted(first) == written
    assert sorted(second) == written
    assert first != second
    assert first != take(Stream(shards, seed=1, window_sequences=64), 0, 50, 6)


@pytest.mark.parametrize("window", [1, 64])
def test_any_place_continues_as_if_never_stopped(shards, window):
    whole = take(Stream(shards, 0, window), 0, 14, 50)
    for position in (14, 98, 294, 308, 602):
        assert take(Stream(shards, 0, window), position, 14, 3) == whole[position : position + 42]


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def mix_lengths(folder):
    other = write_shards(folder.with_name("other"), shards=1, length=64)
    (other / "shard-00000.parquet").rename(folder / "shard-00001.parquet")


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda at: (at / "shards.json").unlink(), "shards.json"),
        (lambda at: (at / "shard-00001.parquet").unlink(), "{at}"),
        (lambda at: cut(at / "shard-00001.parquet"), "{at}/shard-00001.parquet"),
        (lambda at: (at / "vocabulary/tokenizer.json").write_text("{{}}"), "tokenizer.json"),
        (mix_lengths, "shard-00001.parquet: max_length"),
    ],
)
def test_shards_that_are_not_whole_are_refused(tmp_path, spoil, named):
    folder = write_shards(tmp_path / "shards", sequences=20)
    spoil(folder)
    with refuses(named.format(at=folder)):
        Shards.open(folder)
