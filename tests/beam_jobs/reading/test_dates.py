"""Dates of reviews as days."""

import datetime

import pytest

from amazon_electra.beam_jobs.reading.dates import (
    count_dates,
    decide_order,
    parse_day,
    resolve_days,
)
from tests.refusals import refuses

DAY = 16528  # 2015-04-03
DAY_SECONDS = 86_400


@pytest.mark.parametrize(
    "value",
    [
        *("2015-04-03", "2015-04-03T23:59:59.123+02:00", "2015/4/3 10:00", "20150403", 20150403),
        *("3.4.2015", "03. 04. 2015 08:15", "04 3, 2015", DAY * DAY_SECONDS),
        *(float(DAY * DAY_SECONDS), str(DAY * 86400 + 86399), f"{DAY * 86400}.0"),
        *(DAY * 86400_000, DAY * 86400_000_000, datetime.date(2015, 4, 3)),
        datetime.datetime(2015, 4, 3, 23),
    ],
)
def test_a_day_is_one_however_it_is_written(value):
    assert parse_day(value) == DAY


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", True, [], {}, float("nan"), float("inf"), 2015, "2015", "1.4E+12", 42097),
        *("03/04/2015", "2015-02-30", "31.2.2015", "yesterday", "1" * 30, "3 April 2015"),
        *("20150403101500", "2015年4月3日"),
    ],
)
def test_what_is_no_day_for_sure_is_none(value):
    assert parse_day(value) is None


def write_days(form, days=range(1, 29)):
    return [form.format(d=day, m=4, y=2015, s=15) for day in days]


@pytest.mark.parametrize(
    ("form", "order"),
    [
        *(("{d:02}/{m:02}/{y} 10:00", "DMY"), ("{m}/{d}/{y}", "MDY"), ("{d}-{m}-{y}", "DMY")),
        *(("{d}.{m}.{s}", None), ("{m:02}/{d:02}/{s}", "MDY")),
    ],
)
def test_the_column_decides_the_order(form, order):
    counts = count_dates(write_days(form))
    assert decide_order(counts, "shop.csv: date") == order
    assert sorted(resolve_days(counts, order)) == [*range(DAY - 2, DAY + 26)]


def test_an_open_order_is_asked_for_and_taken():
    counts = count_dates(write_days("{d}/{m}/{y}", range(1, 12)))
    with refuses("shop.csv", "date", "dates"):
        decide_order(counts, "shop.csv: date")
    days = resolve_days(counts, decide_order(counts, "", "DMY"))
    assert sorted(days) == [*range(DAY - 2, DAY + 9)]


def test_two_orders_in_one_column_are_refused():
    values = write_days("{d}/{m}/{y}") + write_days("{m}/{d}/{y}")
    with refuses("shop.csv", "date"):
        decide_order(count_dates(values), "shop.csv: date")


def test_a_column_that_is_read_in_part_is_refused():
    read, missing = write_days("{y}-{m}-{d}") * 10, ["", None, "N/A", float("nan")] * 20
    few = decide_order(count_dates([*read, *missing, "soon", "03/04/2015"]), "shop.csv: date")
    assert few is None
    with refuses("shop.csv", "date"):
        decide_order(count_dates([*read, *["soon", "never"] * 2]), "shop.csv: date")
    with refuses("42097"):
        decide_order(count_dates([*read, *["42097"] * 9]), "shop.csv: date")
