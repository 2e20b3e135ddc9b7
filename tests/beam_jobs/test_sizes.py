"""What grows with a dump while its corpus is made stays small, by the formula that
deploy/flink/README.md shows.
"""

import pytest

from tests.bench.data_path_sizes import compute_sizes


@pytest.mark.parametrize("reviews", [233.1e6, 571.5e6])
def test_a_worker_holds_a_gigabyte_and_none_works_alone_for_two_minutes(reviews):
    sizes = compute_sizes(reviews, files=10_000)
    assert sizes["a worker, GB"] < 1
    assert all(seconds < 120 for name, seconds in sizes.items() if name.endswith(", s"))
    assert sizes["counts, MB"] / sizes["units"] < 0.00035


def test_a_bucket_is_no_larger_where_a_dump_is():
    small, large = (compute_sizes(reviews, files=100) for reviews in (500e6, 40e9))
    for name in ("rows of a bucket, million", "runs of a bucket, million"):
        assert large[name] < 2 * small[name]
