"""However a packed dump is cut, the units together hold every record once; what cannot be read to
its end, or changes meanwhile, ends the job. Plain files: test_any_size.py.
"""

import gzip
import io
import json
import random
import zipfile
from dataclasses import replace

import pytest

from amazon_electra.beam_jobs.core import limits, storage
from amazon_electra.beam_jobs.core.errors import TransientError
from amazon_electra.beam_jobs.reading import compression, work_units
from amazon_electra.beam_jobs.reading.compression import PlainStream
from amazon_electra.beam_jobs.reading.format import Layout
from amazon_electra.beam_jobs.reading.json_records import JsonObjects
from amazon_electra.beam_jobs.reading.lines import Reject, Tally
from tests.beam_jobs.dumps import look_at, review, run_job, text_of, write_lines
from tests.beam_jobs.reading.test_formats import pack
from tests.refusals import refuses

RECORDS = 400
LINES = "".join(json.dumps(review(i)) + "\n" for i in range(RECORDS))
QUOTED = [text_of(i).replace(". ", '.\n"so" ').replace('"', '""') for i in range(RECORDS)]
FORMS = {
    "lines.json": LINES,
    "pretty.json": json.dumps([review(i) for i in range(RECORDS)], indent=1),
    "quoted.csv": "stars,text\n" + "".join(f'5,"{text}"\n' for text in QUOTED),
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


@pytest.mark.parametrize("folder", ["cut", "memory://pieces"])
@pytest.mark.parametrize("name", FORMS)
def test_units_hold_every_record_once(tmp_path, monkeypatch, name, folder):
    """Pieces in a bucket are packed again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(gzip.compress(FORMS[name].encode()))
    file = look_at(tmp_path / name)
    whole = work_units.Unit(file, 0, file.path, file.compression, 0, None, file.size)
    expected = records_of([whole])
    assert len(expected[0]) == RECORDS
    assert expected[1] in {FORMS[name].count("\n"), FORMS[name].count("\n") + 1}
    for size in (700, 5000):
        units = work_units.cut_file(file, size, f"{folder}/{name}{size}")
        assert len(units) > 2
        assert {unit.compression for unit in units} == {"" if folder == "cut" else "zst"}
        assert records_of(units) == expected
        assert max(unit.plain_size for unit in units) < size * 3 // 2 + 1000


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("d.json", ConnectionResetError(104, "reset by peer")),
        ("d.json.gz", OSError(5, "Input/output error")),
        ("d.json", FileNotFoundError("The specified key does not exist.")),  # 404 of s3fs
        ("d.json.gz", FileExistsError("At least one of the pre-conditions did not hold")),  # 412
    ],
)
def test_a_disk_or_network_that_fails_is_no_damage(tmp_path, monkeypatch, name, error):
    content = gzip.compress(LINES.encode()) if name.endswith("gz") else LINES.encode()
    (tmp_path / name).write_bytes(content)
    [unit] = work_units.cut_file(look_at(tmp_path / name), 1 << 20, str(tmp_path / "cuts"))

    class Failing(io.BytesIO):
        def read(self, size=-1):
            if self.tell() > 4096:
                raise error
            return super().read(min(size, 4097) if size > 0 else 4097)

        def readinto(self, buffer):
            block = self.read(len(buffer))
            buffer[: len(block)] = block
            return len(block)

    monkeypatch.setattr(storage, "open_bytes", lambda *_: Failing(content))
    with refuses(name, kind=TransientError):
        list(work_units.read_records(unit, Tally()))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_a_stretch_without_boundaries_is_not_searched_again_and_again(
    tmp_path, monkeypatch, packed
):
    long = random.Random(0).randbytes(150_000).hex().encode()  # which gzip does not make small
    content = b'{"reviewText": "ok"}\n\n{"a": "' + long + b'"}'
    (tmp_path / "d.json").write_bytes(gzip.compress(content) if packed else content)
    file = replace(look_at(tmp_path / "d.json"), layout=Layout("json_objects"))
    searched = []
    search = JsonObjects.find_boundary

    def count(self, stretch, *rest):
        searched.append(len(stretch))
        return search(self, stretch, *rest)

    monkeypatch.setattr(JsonObjects, "find_boundary", count)
    monkeypatch.setattr(compression, "PLAIN_BLOCK", 1 << 14)
    units = work_units.cut_file(file, 5000, str(tmp_path / "cut"))
    assert sum(len(list(work_units.read_records(unit, Tally()))) for unit in units) == 2
    assert 0 < sum(searched) < 5 * len(content)


DAMAGES = {
    "cut off": lambda packed: packed[: len(packed) // 2],
    "overwritten": lambda packed: packed[: len(packed) // 2] + b"\xff" * (len(packed) // 2),
    "followed": lambda packed: packed + b"x" * 99,
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("compression", ["gz", "bz2", "zst", "zip"])
def test_a_damaged_file_ends_the_job(tmp_path, compression, how):
    if compression in ("zip", "bz2") and how == "followed":
        return  # which both formats allow
    pack(tmp_path / f"whole.{compression}", LINES.encode() * 30)
    packed = (tmp_path / f"whole.{compression}").read_bytes()
    (tmp_path / "d").write_bytes(DAMAGES[how](packed))
    with refuses("/d"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "d")
    assert not (tmp_path / "corpus" / "corpus.json").exists()


def test_a_file_expands_as_far_as_its_own_packed_bytes_allow(tmp_path, monkeypatch):
    for module in (compression, limits):
        monkeypatch.setattr(module, "UNLIMITED_BYTES", 1 << 12)
    path = str(tmp_path / "d.zip")
    noise = random.Random(0).randbytes(1 << 20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("noise", noise)
    for _ in range(2):
        with PlainStream(path, "zip", "noise", max_expansion=2) as stream:
            assert b"".join(iter(stream.read, b"")) == noise
    bomb = b'{"reviewText": "ok"}\n{"reviewText": "' + b"a" * 10_000_000 + b'"}\n'
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(bomb))
    with refuses("max_expansion"):
        run_job(tmp_path / "corpus", "--input", tmp_path / "bomb.json.gz")
    with PlainStream(str(tmp_path / "bomb.json.gz"), "gz", max_expansion=0) as stream:
        assert sum(map(len, iter(stream.read, b""))) == len(bomb)


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
