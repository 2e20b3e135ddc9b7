"""Buckets: which rows lie in each, here and in a store, and how many there are."""

import numpy as np
import pytest

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.deduplication import buckets, exact, held_out, near
from amazon_electra.beam_jobs.deduplication.buckets import RUN
from amazon_electra.beam_jobs.reading.work_units import PreparedUnit


@pytest.mark.parametrize("bucket", [(0, 1), (3, 4), (63, 64), (1023, 1024)])
def test_the_rows_of_a_bucket_are_those_that_lie_in_it(tmp_path, bucket):
    """In three files, one of them empty; where their buckets begin is the second of two kinds."""
    rng, paths = np.random.default_rng(0), []
    for number, rows in enumerate((5_000, 0, 3_000)):
        content = np.zeros(rows, RUN)
        content["run"] = np.sort(rng.integers(0, 1 << 63, rows, np.uint64) << np.uint64(1))
        content["text"] = rng.integers(0, 1000, rows)
        paths.append(path := str(tmp_path / f"{number}.runs"))
        storage.write_bytes(path, content.tobytes())
        starts = buckets.find_starts(content["run"])
        packed = np.concatenate([starts + np.uint64(1), starts]).tobytes()
        storage.write_bytes(f"{path}.starts", packed)
    joined = str(tmp_path / "starts")
    buckets.join_starts([f"{path}.starts" for path in paths], joined)
    files = buckets.BucketedFiles(tuple(paths), joined, kind=1)
    found = list(buckets.read_bucket(bucket, files, RUN))
    for path, rows in zip(files.paths, found, strict=True):
        whole = np.frombuffer(storage.read_bytes(path), RUN)
        here = (whole["run"].astype(float) / 2.0**64 * bucket[1]).astype(int)
        assert rows.tolist() == whole[here == bucket[0]].tolist()


MANY = 3 << 19
"""Reviews of two units: 1.5 of the rows that a bucket has on average at most."""


@pytest.mark.parametrize(
    ("listed", "of"),
    [
        (lambda: exact.list_buckets([PreparedUnit("a", 99_999)]), 1),
        (lambda: exact.list_buckets(units_of(MANY)), 8),  # so that several workers share them
        (lambda: exact.list_buckets(units_of(9 * MANY)), 16),
        (lambda: exact.list_buckets(units_of(4001 * MANY)), 1024),
        (lambda: near.list_buckets(units_of(MANY), 0.8), 32),  # a row for each band
        (lambda: held_out.Compared(units_of(buckets.SHARED_REVIEWS)).list_buckets(), 0),
        (lambda: held_out.Compared(units_of(9, held_out.BUCKET_RUNS - 1)).list_buckets(), 1),
        (lambda: held_out.Compared(units_of(9, 300 * held_out.BUCKET_RUNS)).list_buckets(), 512),
        (lambda: held_out.Compared(units_of(buckets.SHARED_REVIEWS, 9)).list_buckets(), 8),
    ],
)
def test_as_many_buckets_as_the_rows_need(listed, of):
    assert list(listed()) == [(number, of) for number in range(of)]


def units_of(reviews, runs=0):
    return [PreparedUnit("a", reviews - 5, held_out_runs=runs), PreparedUnit("b", 5)]
