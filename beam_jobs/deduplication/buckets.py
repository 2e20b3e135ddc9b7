"""Cuts files of hashes into buckets by their first bits, so that workers share what is compared.

A file begins with the hashes of the first bucket; where each of MAX_BUCKETS begins in it is a line
of text (`encode_starts`). Fewer, larger buckets are made of several of these.

Who searches reads a bucket as one stretch of each unit's file. In a store each is a request, of
1.6 ms of CPU time and 0.4 millionths of a dollar, and there are as many as units times buckets. So
a part, which a worker is given, is several buckets where there are many: it fetches the stretches
of all of them at once, into a temporary file of its worker. Then there are MAX_PARTS requests for
each file at most, and a worker holds no more than one bucket.
"""

import base64
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import numpy as np

from beam_jobs.core import storage

MAX_BUCKETS = 1024
MAX_PARTS = 128
"""More workers than these have nothing to do while the others search, a fifth of a corpus job."""
Bucket = tuple[int, int]
"""Its number, and how many there are."""
Part = tuple[int, int, int]
"""Its number, how many there are, and of how many buckets all of them are made."""
BucketedFile = tuple[str, str]
"""A path, and where each bucket begins in it (`encode_starts`)."""
BucketReader = Callable[[Bucket], Iterator[np.ndarray]]
"""Yields the rows of a bucket, file by file."""
SHARED_REVIEWS, SHARED_BUCKETS = 100_000, 8
"""From so many reviews on there are so many buckets, at least: 0.7 µs a review go to several
workers, and a bucket more takes 0.2 ms of each unit."""


def number_buckets(hashes: np.ndarray) -> np.ndarray:
    """Return the bucket of each hash (uint64), uint16, if there are MAX_BUCKETS."""
    return (hashes >> np.uint64(65 - MAX_BUCKETS.bit_length())).astype(np.uint16)


def encode_starts(hashes: np.ndarray) -> str:
    """Return where each of MAX_BUCKETS buckets begins among hashes (uint64), and the end."""
    return encode_counts(np.bincount(number_buckets(hashes), minlength=MAX_BUCKETS))


def encode_counts(counts: np.ndarray) -> str:
    """Return where each of several stretches of these lengths begins, and the end, as text."""
    return base64.b64encode(compute_starts(counts).tobytes()).decode()


def compute_starts(counts: np.ndarray) -> np.ndarray:
    """Return where each of several stretches of these lengths begins, and the end, uint32."""
    return np.concatenate([[0], np.cumsum(counts)]).astype("<u4")


def decode_starts(starts: str) -> np.ndarray:
    """Return what `encode_counts` was given as the places of its starts, uint32."""
    return np.frombuffer(base64.b64decode(starts), "<u4")


def locate_bucket(starts: str, bucket: int, of: int) -> tuple[int, int]:
    """Return the first and last row (excluded) of one of `of` buckets in a file."""
    places = decode_starts(starts)
    width = (len(places) - 1) // of
    return int(places[bucket * width]), int(places[(bucket + 1) * width])


def count_rows(starts: str) -> int:
    """Return how many rows a file has."""
    return int(decode_starts(starts)[-1])


def count_buckets(rows: int, bucket_rows: int, reviews: int = 0) -> int:
    """Return how many buckets to make, a power of two: each of about `bucket_rows` at most, and of
    many reviews enough for several workers.
    """
    fewest = SHARED_BUCKETS if reviews >= SHARED_REVIEWS else 1
    return min(MAX_BUCKETS, max(fewest, 1 << (rows // bucket_rows).bit_length()))


def list_parts(of: int) -> Iterator[Part]:
    """Yield the parts that share so many buckets."""
    parts = min(of, MAX_PARTS)
    return ((part, parts, of) for part in range(parts))


def list_buckets_of(part: Part) -> list[Bucket]:
    """Return the buckets of a part."""
    number, parts, of = part
    width = of // parts
    return [(bucket, of) for bucket in range(number * width, (number + 1) * width)]


@contextmanager
def open_part(part: Part, files: Sequence[BucketedFile], kind: np.dtype) -> Iterator[BucketReader]:
    """Yield what reads the buckets of a part, in files of rows of this kind, within the block."""
    if len(list_buckets_of(part)) == 1 or not any(storage.is_remote(path) for path, _ in files):
        yield lambda bucket: read_bucket(bucket, files, kind)
        return
    with tempfile.TemporaryFile() as spool:
        begins = []
        for packed in storage.read_each(list_stretches(part[:2], files, kind)):
            begins.append(spool.tell())
            spool.write(packed)
        yield lambda bucket: read_spooled_bucket(bucket, part, files, kind, spool, begins)


def read_bucket(
    bucket: Bucket, files: Sequence[BucketedFile], kind: np.dtype
) -> Iterator[np.ndarray]:
    """Yield the rows of a bucket from each file."""
    for packed in storage.read_each(list_stretches(bucket, files, kind)):
        yield np.frombuffer(packed, kind)


def read_spooled_bucket(
    bucket: Bucket,
    part: Part,
    files: Sequence[BucketedFile],
    kind: np.dtype,
    spool: IO[bytes],
    begins: Sequence[int],
) -> Iterator[np.ndarray]:
    """Yield the rows of a bucket of each file, whose stretch of the part begins at a byte of a
    temporary file.
    """
    for (_, starts), begin in zip(files, begins, strict=True):
        before, _ = locate_bucket(starts, *part[:2])
        first, last = locate_bucket(starts, *bucket)
        spool.seek(begin + (first - before) * kind.itemsize)
        yield np.frombuffer(spool.read((last - first) * kind.itemsize), kind)


def list_stretches(
    bucket: Bucket, files: Sequence[BucketedFile], kind: np.dtype
) -> Iterator[storage.Stretch]:
    """Yield the bytes of a bucket in each file."""
    for path, starts in files:
        first, last = locate_bucket(starts, *bucket)
        yield path, first * kind.itemsize, last * kind.itemsize
