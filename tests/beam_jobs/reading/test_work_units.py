"""However a dump is cut, the units together hold every record once, and the cuts depend on the dump
alone.
"""

import bz2
import gzip
import io
import json
import random
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest

from amazon_electra.beam_jobs import corpus_job
from amazon_electra.beam_jobs.core import limits, storage
from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.beam_jobs.reading import compression, work_units
from amazon_electra.beam_jobs.reading.compression import PlainStream
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from tests.beam_jobs.dumps import look_at, refuses, review, run_job, text_of, write_lines

RECORDS = 400


def quoted_csv() -> str:
    texts = [text_of(i).replace(". ", '.\n"so" ').replace('"', '""') for i in range(RECORDS)]
    return "stars,text\n" + "".join(f'{i % 5 + 1},"{text}"\n' for i, text in enumerate(texts))


def unquoted_tsv() -> str:
    return "marketplace\tstars\ttext\n" + "".join(
        f'US\t{i % 5 + 1}\t"{text_of(i)}\n' for i in range(RECORDS)
    )


FORMS = {
    "lines.json": "".join(json.dumps(review(i)) + "\n" for i in range(RECORDS)),
    "crlf.json": "".join(json.dumps(review(i)) + "\r\n" for i in range(RECORDS)),
    "no_last_end.json": "\n".join(json.dumps(review(i)) for i in range(RECORDS)),
    "array.json": json.dumps([review(i) for i in range(RECORDS)]),
    "pretty.json": json.dumps([review(i) for i in range(RECORDS)], indent=1),
    "quoted.csv": quoted_csv(),
    "unquoted.tsv": unquoted_tsv(),
    "fasttext.txt": "".join(f"__label__{i % 2 + 1} T: {text_of(i)}\n" for i in range(RECORDS)),
    "snap.txt": "\n".join(
        f"review/score: 4.0\nreview/text: {text_of(i)}\n" for i in range(RECORDS)
    ),
}


def records_of(units: list[work_units.Unit]) -> tuple[list[dict], int]:
    """Records in the order of the units, and the sum of their lines."""
    records: list[dict] = []
    lines = 0
    for unit in units:
        tally = Tally()
        for item in work_units.read_records(unit, tally):
            assert not isinstance(item, Reject), item
            records.append(item[1])
        lines += tally.lines
    return records, lines


def write(path: Path, content: str, packed: bool) -> Path:
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    return path


@pytest.mark.parametrize("name", FORMS)
def test_units_hold_every_record_once(tmp_path, name):
    """Of packed files; those of plain ones: test_any_size.py."""
    file = look_at(write(tmp_path / name, FORMS[name], packed=True))
    whole = work_units.Unit(file, 0, file.path, file.compression, 0, None, file.size)
    expected = records_of([whole])
    assert len(expected[0]) == RECORDS
    assert expected[1] in {FORMS[name].count("\n"), FORMS[name].count("\n") + 1}
    for size in (700, 5000):
        units = work_units.cut_file(file, size, str(tmp_path / f"cut{size}"))
        assert len(units) > 2
        assert records_of(units) == expected
        assert max(unit.plain_size for unit in units) < size * 3 // 2 + 1000


def test_the_size_of_units_depends_on_the_dump_alone():
    """Of a dump of billions of reviews they are larger, so that they do not grow without end."""
    sizes = [work_units.choose_unit_bytes(1 << power) for power in (20, 30, 39, 40, 50)]
    assert sizes[:3] == [work_units.MIN_UNIT_BYTES, (1 << 30) // 64, work_units.MAX_UNIT_BYTES]
    assert sizes[3:] == [(1 << 40) // work_units.MANY_UNITS, work_units.LARGEST_UNIT_BYTES]


@pytest.mark.parametrize("cut_at", [0.3, 0.9])
def test_what_can_be_read_of_a_truncated_gz_is_kept(tmp_path, cut_at):
    content = gzip.compress(FORMS["lines.json"].encode())
    (tmp_path / "d.json.gz").write_bytes(content[: int(len(content) * cut_at)])
    write_lines(tmp_path / "whole.json", [review(RECORDS)])
    argv = ("--input", tmp_path / "d.json.gz", tmp_path / "whole.json")
    with refuses("d.json.gz", "max_damaged_files"):
        run_job(tmp_path / "corpus", *argv)
    assert not (tmp_path / "corpus" / "corpus.json").exists()
    result = run_job(tmp_path / "corpus", *argv, "--max-damaged-files", "1")
    assert RECORDS * cut_at * 0.6 < result["kept"] < RECORDS
    assert result["dropped"]["damaged file: cut off in the middle"] == 1
    assert result["notes"]["damaged_files"] == 1


def test_a_re_cut_file_is_held_in_two_stretches_at_most(tmp_path):
    line = json.dumps(review(1)).encode() + b"\n"
    path, size = tmp_path / "large.json.gz", 8_000_000
    path.write_bytes(gzip.compress(line * (5 * size // len(line)), 1))
    sizes, layout = [], look_at(path).layout
    with PlainStream(str(path), "gz") as stream:
        tracemalloc.start()
        for stretch, _ in work_units._split_stream(stream, size, layout):
            sizes.append(len(stretch))
            del stretch
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert len(sizes) == 5
    assert held < 2.6 * size, held


def test_a_re_cut_file_keeps_its_damage(tmp_path):
    content = gzip.compress(FORMS["lines.json"].encode())
    (tmp_path / "d.json.gz").write_bytes(content[: len(content) - 100])
    units = work_units.cut_file(look_at(tmp_path / "d.json.gz"), 5000, str(tmp_path / "cut"))
    assert [unit.damage for unit in units[:-1]] == [""] * (len(units) - 1)
    assert units[-1].damage == "damaged file: cut off in the middle"


@pytest.mark.parametrize(
    ("packed", "error"),
    [
        ("d.json", ConnectionResetError(104, "reset by peer")),
        ("d.json.gz", OSError(5, "Input/output error")),
        ("d.json", FileNotFoundError("The specified key does not exist.")),  # 404 of s3fs
        ("d.json.gz", FileExistsError("At least one of the pre-conditions did not hold")),  # 412
    ],
)
def test_a_disk_or_network_that_fails_ends_the_job_with_nothing_lost(
    tmp_path, monkeypatch, packed, error
):
    content = FORMS["lines.json"].encode()
    (tmp_path / packed).write_bytes(gzip.compress(content) if packed.endswith("gz") else content)
    opened = storage.open_bytes

    class Failing(io.BytesIO):
        def read(self, size=-1):
            if self.tell() > 4096:
                raise error
            return super().read(min(size, 4097) if size > 0 else 4097)

    def failing(path, *block):
        return (
            Failing((tmp_path / packed).read_bytes())
            if str(path).endswith(packed)
            else opened(path, *block)
        )

    monkeypatch.setattr(storage, "open_bytes", failing)
    with refuses(packed, kind=TransientError):
        run_job(tmp_path / "corpus", "--input", tmp_path / packed)
    assert not (tmp_path / "corpus" / "corpus.json").exists()
    monkeypatch.setattr(storage, "open_bytes", opened)
    assert run_job(tmp_path / "corpus", "--input", tmp_path / packed)["kept"] == RECORDS


@pytest.fixture
def small_limit(monkeypatch):
    """The expansion limit looks at files from four kilobytes on."""
    for module in (compression, limits):
        monkeypatch.setattr(module, "UNLIMITED_BYTES", 1 << 12)


def test_a_decompression_bomb_stops_at_the_limit(tmp_path, small_limit):
    (tmp_path / "bomb.json.gz").write_bytes(
        gzip.compress(b'{"reviewText": "ok"}\n{"reviewText": "' + b"a" * 10_000_000 + b'"}\n')
    )
    with refuses("max_expansion"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "bomb.json.gz")
    with PlainStream(str(tmp_path / "bomb.json.gz"), "gz", max_expansion=0) as stream:
        assert sum(map(len, iter(lambda: stream.read(1 << 20), b""))) > 10_000_000


def test_a_dump_and_a_corpus_behind_fsspec(tmp_path):
    """Remote folders, here in memory, hold the same bytes as local ones; nothing is left of the
    work.
    """
    memory = fsspec.filesystem("memory")
    records = [review(i) for i in range(40)] + ["{broken", review(3)]
    for name in ("a.json", "b.json.gz"):
        memory.pipe_file(f"/dumps/{name}", write_lines(tmp_path / name, records).read_bytes())
    run_job(tmp_path / "local", "--input", tmp_path / "a.json", tmp_path / "b.json.gz")
    argv = ["--input", "memory://dumps/*", "--output", "memory://corpus"]
    result = call_job(corpus_job.make_corpus, [*argv, "--direct_running_mode=in_memory"])
    assert (result["read"], result["kept"]) == (84, 40)
    local = {
        f"/corpus/{path.relative_to(tmp_path / 'local')}": path
        for path in (tmp_path / "local").rglob("*")
        if path.is_file()
    }
    assert set(memory.find("/corpus")) == set(local)
    for name, path in local.items():
        if name.endswith(".parquet"):
            assert memory.cat_file(name) == path.read_bytes()


@pytest.mark.parametrize(
    ("option", "other"), [("--input", ["--output", "out"]), ("--output", ["--input", "a.json"])]
)
def test_an_object_store_out_of_reach_is_told_in_one_line(option, other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "a.json", [review(1)])
    with pytest.raises(UserError) as wrong:
        call_job(corpus_job.make_corpus, [option, "nowhere://bucket/x", *other])
    assert f"{option[2:]} nowhere://bucket/x " in str(wrong.value)


def test_pieces_in_a_bucket_are_packed_and_hold_the_same(tmp_path):
    file = look_at(write(tmp_path / "d.json", FORMS["lines.json"], packed=True))
    here = work_units.cut_file(file, 5000, str(tmp_path / "cut"))
    there = work_units.cut_file(file, 5000, "memory://pieces")
    assert [unit.compression for unit in (here[0], there[0])] == ["", "zst"]
    assert records_of(there) == records_of(here)
    assert [unit.plain_size for unit in there] == [unit.plain_size for unit in here]
    sizes = [sum(storage.get_size(unit.path) for unit in units) for units in (here, there)]
    assert sizes[1] < sizes[0] / 3


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_a_stretch_without_boundaries_is_not_searched_again_and_again(
    tmp_path, monkeypatch, packed
):
    content = '{"reviewText": "ok"}\n\n{"a": "' + "x" * 300_000 + '"}'
    path = write(tmp_path / "d.json", content, packed)
    file = replace(look_at(path), layout=Layout("json_objects"))
    searched = []
    search = work_units.find_boundary
    monkeypatch.setattr(
        work_units, "find_boundary", lambda b, *rest: searched.append(len(b)) or search(b, *rest)
    )
    monkeypatch.setattr("amazon_electra.beam_jobs.reading.compression.PLAIN_BLOCK", 1 << 14)
    units = work_units.cut_file(file, 5000, str(tmp_path / "cut"))
    assert sum(len(list(work_units.read_records(unit, Tally()))) for unit in units) == 2
    assert sum(searched) < 5 * len(content)


def packed_with(compression: str, content: bytes) -> bytes:
    if compression == "zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("d.json", content)
        return buffer.getvalue()
    packers = {"gz": gzip.compress, "bz2": bz2.compress, "zst": pa.Codec("zstd").compress}
    return bytes(packers[compression](content))


# Bytes that no reader can save: bzip2 unpacks blocks of 900 kB as a whole, Zstandard of 128 kB.
LOST = {"gz": 20_000, "zip": 40_000, "bz2": 901_000, "zst": 140_000}


@pytest.mark.parametrize("how", ["cut off", "overwritten"])
@pytest.mark.parametrize("compression", LOST)
def test_all_that_comes_before_damage_is_read(tmp_path, compression, how):
    content = (
        np.random.default_rng(0).integers(97, 113, 3_000_000, np.uint8).tobytes()
    )  # half a byte of news in each
    packed = packed_with(compression, content)
    at = len(packed) * 6 // 10
    end = packed[-200:] if compression == "zip" else b""
    damaged = packed[:at] + (
        end if how == "cut off" else b"\xff" * 300_000 + packed[at + 300_000 :]
    )
    (tmp_path / "d").write_bytes(damaged)
    if compression == "zip" and how == "cut off":
        return  # a zip without its list of members cannot be opened
    with PlainStream(
        str(tmp_path / "d"), compression, "d.json" if compression == "zip" else ""
    ) as stream:
        read = b"".join(iter(stream.read, b""))
    assert stream.damage
    found, expected = (np.frombuffer(some[: len(read)], np.uint8) for some in (read, content))
    wrong = np.flatnonzero(found[: len(expected)] != expected)
    right = wrong[0] if len(wrong) else len(expected)
    assert right > len(content) * 0.6 - LOST[compression]


def test_a_zip_member_expands_as_far_as_its_own_packed_bytes_allow(tmp_path, small_limit):
    path = str(tmp_path / "d.zip")
    noise = random.Random(0).randbytes(1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("noise", noise)
        archive.writestr("bomb", b"a" * (1 << 22))
    for _ in range(2):
        with PlainStream(path, "zip", "noise", max_expansion=2) as stream:
            assert b"".join(iter(stream.read, b"")) == noise
    with PlainStream(path, "zip", "bomb", max_expansion=200) as stream, refuses("max_expansion"):
        list(iter(stream.read, b""))


@pytest.mark.parametrize("name", ["d.json", "d.json.gz"])
def test_a_dump_that_changes_while_it_is_read_ends_the_job(tmp_path, name):
    """By as many bytes of others, once the job has looked at it; also while it is unpacked."""
    dump = write_lines(tmp_path / name, [review(i, f"text {i:05}") for i in range(3000)])
    file = look_at(dump)
    units = work_units.cut_file(file, 5000, str(tmp_path / "before"))
    list(work_units.read_records(units[0], Tally()))
    dump.write_bytes(dump.read_bytes())
    for again in (
        lambda: work_units.cut_file(file, 5000, str(tmp_path / "after")),
        lambda: list(work_units.read_records(replace(units[0], path=file.path), Tally())),
    ):
        with refuses(name):
            again()
    assert not list((tmp_path / "after").glob("*.json")), "nothing goes on from such pieces"


def test_a_zip_that_is_overwritten_is_listed_anew():
    for name in ("a.json", "b.json"):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(name, "{}")
        storage.write_bytes("memory://bucket/d.zip", packed.getvalue())
        assert compression.list_zip_members("memory://bucket/d.zip") == [name]
