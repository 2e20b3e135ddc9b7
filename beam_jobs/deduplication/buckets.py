"""Cuts files of hashes into buckets by their first bits, so that workers share what is compared.

A file begins with the hashes of the first bucket; where each of MAX_BUCKETS begins in it is a line
of text (`encode_starts`). Fewer, larger buckets are made of several of these.
"""

import base64

import numpy as np

MAX_BUCKETS = 1024
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
