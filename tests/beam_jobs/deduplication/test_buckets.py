"""A part of several buckets is read at once from a store, and gives the rows of each bucket."""

import fsspec
import numpy as np
import pytest

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.deduplication import buckets, exact, held_out, near
from amazon_electra.beam_jobs.deduplication.held_out import RUN
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit


@pytest.fixture(params=["local", "memory"])
def files(request, tmp_path):
    """Three files of rows, one of them empty; where their buckets begin is the second of two
    kinds.
    """
    rng = np.random.default_rng(0)
    folder = str(tmp_path) if request.param == "local" else f"memory://{tmp_path}"
    paths = []
    for number, rows in enumerate((5_000, 0, 3_000)):
        content = np.zeros(rows, RUN)
        content["run"] = np.sort(rng.integers(0, 1 << 63, rows, np.uint64) << np.uint64(1))
        content["text"] = rng.integers(0, 1000, rows)
        paths.append(path := f"{folder}/{number}.runs")
        storage.write_bytes(path, content.tobytes())
        starts = buckets.find_starts(content["run"])
        packed = np.concatenate([starts + np.uint64(1), starts]).tobytes()
        storage.write_bytes(f"{path}.starts", packed)
    buckets.join_starts([f"{path}.starts" for path in paths], f"{folder}/starts")
    written = buckets.BucketedFiles(tuple(paths), f"{folder}/starts", kind=1)
    yield written
    if request.param == "memory":
        fsspec.filesystem("memory").rm(str(tmp_path), recursive=True)


@pytest.mark.parametrize("part", [(0, 1, 1), (3, 4, 4), (3, 4, 64), (0, 2, 1024), (7, 1024, 8192)])
def test_the_rows_of_each_bucket_are_those_that_lie_in_it(files, part, monkeypatch):
    asked = []
    read_each = storage.read_each

    def note_stretches(stretches):
        asked.append(len(wanted := list(stretches)))
        return read_each(wanted)

    monkeypatch.setattr(storage, "read_each", note_stretches)
    every = [np.frombuffer(storage.read_bytes(path), RUN) for path in files.paths]
    with buckets.open_part(part, files, RUN) as read_bucket:
        for bucket in reversed(buckets.list_buckets_of(part)):
            found = list(read_bucket(bucket))
            assert len(found) == len(files.paths)
            for rows, whole in zip(found, every, strict=True):
                here = (whole["run"].astype(float) / 2.0**64 * part[2]).astype(int)
                assert rows.tolist() == whole[here == bucket].tolist()
    if storage.is_remote(files.starts):
        assert asked == [len(files.paths)], "one stretch of each file, however many buckets"


def test_parts_are_all_buckets_once(monkeypatch):
    for of in (1, 64, 128, 1024, 1 << 17):
        parts = list(buckets.list_parts(of))
        assert len(parts) == min(of, buckets.MAX_PARTS)
        found = [bucket for part in parts for bucket in buckets.list_buckets_of(part)]
        assert found == list(range(of))


MANY = 3 << 19
"""Reviews of two units: 1.5 of the rows that a bucket has on average at most."""


@pytest.mark.parametrize(
    ("list_parts", "parts", "of"),
    [
        (lambda: exact.list_parts([PreparedUnit("a", 99_999)]), 1, 1),
        (lambda: exact.list_parts(units_of(MANY)), 8, 8),  # so that several workers share them
        (lambda: exact.list_parts(units_of(9 * MANY)), 16, 16),
        (lambda: exact.list_parts(units_of(401 * MANY)), 128, 1024),
        (lambda: near.list_parts(units_of(MANY), 0.8), 32, 32),  # a row for each band
        (lambda: held_out.list_run_parts(units_of(9, held_out.BUCKET_RUNS - 1)), 1, 1),
        (lambda: held_out.list_run_parts(units_of(9, 3 * held_out.BUCKET_RUNS)), 4, 4),
        (lambda: held_out.list_run_parts(units_of(9, 300 * held_out.BUCKET_RUNS)), 128, 512),
        (lambda: held_out.list_run_parts(units_of(buckets.SHARED_REVIEWS, 9)), 8, 8),
    ],
)
def test_as_many_buckets_as_the_rows_need(list_parts, parts, of):
    assert list(list_parts()) == [(part, parts, of) for part in range(parts)]


def units_of(reviews, runs=0):
    return [PreparedUnit("a", reviews - 5, held_out_runs=runs), PreparedUnit("b", 5)]


def test_runs_of_other_files_count_too(monkeypatch):
    monkeypatch.setattr(buckets.BucketedFiles, "count_rows", lambda _: 2 * held_out.BUCKET_RUNS)
    assert len(list(held_out.list_run_parts(units_of(9)))) == 4
