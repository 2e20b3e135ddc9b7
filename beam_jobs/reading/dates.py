"""Reads the date of a review as a day, from the forms that dumps and shops write.

What could mean two days, such as 03/04/2015, is no date: nothing is guessed.
"""

import datetime
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

FORMS = (
    "a date is read as 2015-04-03, 3.4.2015, Apr 3, 2015 or Unix time; 03/04/2015 is none, since "
    "it could mean two days"
)
YEARS = range(1900, 2100)
EPOCH = datetime.date(1970, 1, 1).toordinal()
SECONDS_OF_A_DAY = 86_400
YEAR_FIRST = re.compile(r"(\d{4})([-/.]?)(\d\d?)\2(\d\d?)(?!\d)")
DAY_FIRST = re.compile(r"(\d\d?)\. ?(\d\d?)\. ?(\d{4})(?!\d)")
MONTH_FIRST = re.compile(r"(\d\d?) (\d\d?), (\d{4})$")  # reviewTime of Amazon's dumps: 08 3, 2015
NAMED_MONTH_FIRST = re.compile(r"\b([^\W\d]{3,9})\.? (\d\d?),? (\d{4})\b")
NAMED_DAY_FIRST = re.compile(r"\b(\d\d?)\.? ([^\W\d]{3,9})\.?,? (\d{4})\b")
MONTHS = {
    name: 1 + number % 12
    for names in (
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "jan feb mär apr mai jun jul aug sep okt nov dez",
    )
    for number, name in enumerate(names.split())
}
"""By the first three letters of their English and German names."""


def parse_day(value: Any) -> int | None:
    """Return the day of a timestamp in days since 1970-01-01, or None where it is no date.

    Numbers are Unix time, in seconds, or by their size in milli-, micro- or nanoseconds; those of
    eight digits are YYYYMMDD where that is a day.
    """
    if isinstance(value, datetime.date):  # a datetime too
        return value.toordinal() - EPOCH
    if isinstance(value, str):
        return _parse_text(value.strip()[:100])
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    if abs(value) == float("inf") or value in YEARS:
        return None
    return _parse_text(str(int(value)))


@lru_cache(1 << 16)
def _parse_text(text: str) -> int | None:
    number = text.removesuffix(".0")
    if number.removeprefix("-").isdecimal() and len(number) != 8:
        return _parse_unix_time(int(number)) if len(number) < 21 else None
    for day in _list_readings(text):
        try:
            found = datetime.date(*day)
        except ValueError:
            break
        if found.year in YEARS:
            return found.toordinal() - EPOCH
    return _parse_unix_time(int(number)) if number.isdecimal() else None


def _list_readings(text: str) -> Iterable[tuple[int, int, int]]:
    """Yield year, month and day, as the forms read them."""
    if found := YEAR_FIRST.match(text):
        yield int(found[1]), int(found[3]), int(found[4])
    if found := DAY_FIRST.match(text):
        yield int(found[3]), int(found[2]), int(found[1])
    if found := MONTH_FIRST.match(text):
        yield int(found[3]), int(found[1]), int(found[2])
    if found := NAMED_MONTH_FIRST.search(text):
        yield int(found[3]), MONTHS.get(found[1][:3].lower(), 0), int(found[2])
    if found := NAMED_DAY_FIRST.search(text):
        yield int(found[3]), MONTHS.get(found[2][:3].lower(), 0), int(found[1])


def _parse_unix_time(number: int) -> int | None:
    if number in YEARS:
        return None
    while abs(number) >= 10**11:  # the year 5138 in seconds, 1973 in milliseconds
        number //= 1000
    day = number // SECONDS_OF_A_DAY
    return day if datetime.date.min.toordinal() <= day + EPOCH else None
