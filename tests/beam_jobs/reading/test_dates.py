"""Dates of reviews as days."""

import datetime

import pytest

from beam_jobs.reading.dates import parse_day

DAY = 16528  # 2015-04-03
DAY_SECONDS = 86_400


@pytest.mark.parametrize(
    "value",
    [
        "2015-04-03",
        "2015-04-03T23:59:59.123+02:00",
        "2015/4/3 10:00",
        "20150403",
        20150403,
        "3.4.2015",
        "03. 04. 2015 08:15",
        "04 3, 2015",
        "Apr 3, 2015",
        "Reviewed in the United States on April 3, 2015",
        "3. April 2015",
        "Fri, 03 Apr 2015 10:00:00 GMT",
        DAY * DAY_SECONDS,
        float(DAY * DAY_SECONDS),
        str(DAY * 86400 + 86399),
        f"{DAY * 86400}.0",
        DAY * 86400_000,
        DAY * 86400_000_000,
        datetime.date(2015, 4, 3),
        datetime.datetime(2015, 4, 3, 23),
    ],
)
def test_a_day_is_one_however_it_is_written(value):
    assert parse_day(value) == DAY


def test_seconds_of_eight_digits_are_unix_time():
    assert [parse_day(str(day * DAY_SECONDS)) for day in range(116, 600)] == [*range(116, 600)]


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", True, [], {}, float("nan"), float("inf"), 2015, "2015", "April 2015"),
        *("03/04/2015", "2015-02-30", "31.2.2015", "yesterday", "1" * 30, "Foo 3, 2015"),
    ],
)
def test_what_is_no_day_for_sure_is_none(value):
    assert parse_day(value) is None
