"""Reads the date of a review as a day, from the forms that dumps and shops write.

What could mean two days, such as 03/04/2015, is no date: nothing is guessed.
"""

import datetime
import re
from functools import lru_cache
from typing import Any

FORMS = (
    "a date is read as 2015-04-03, 3.4.2015, Apr 3, 2015 or Unix time; 03/04/2015 is none, since "
    "it could mean two days"
)
YEARS = range(1900, 2100)
EPOCH = datetime.date(1970, 1, 1).toordinal()
SECONDS_OF_A_DAY = 86_400
READINGS = [
    re.compile(form.format(day=r"(?P<day>\d\d?)", year=r"(?P<year>\d{4})"))
    for form in (
        r"^{year}(?P<sign>[-/.]?)(?P<month>\d\d?)(?P=sign){day}(?!\d)",
        r"^{day}\. ?(?P<month>\d\d?)\. ?{year}(?!\d)",
        r"^(?P<month>\d\d?) {day}, {year}$",  # reviewTime of Amazon's dumps: 08 3, 2015
        r"\b(?P<month>[^\W\d]{{3,9}})\.? {day},? {year}\b",
        r"\b{day}\.? (?P<month>[^\W\d]{{3,9}})\.?,? {year}\b",
    )
]
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
    for pattern in READINGS:
        if found := pattern.search(text):
            name = found["month"]
            month = int(name) if name.isdecimal() else MONTHS.get(name[:3].lower(), 0)
            try:
                day = datetime.date(int(found["year"]), month, int(found["day"]))
            except ValueError:
                break
            if day.year in YEARS:
                return day.toordinal() - EPOCH
    return _parse_unix_time(int(number)) if number.isdecimal() else None


def _parse_unix_time(number: int) -> int | None:
    if number in YEARS:
        return None
    while abs(number) >= 10**11:  # the year 5138 in seconds, 1973 in milliseconds
        number //= 1000
    day = number // SECONDS_OF_A_DAY
    return day if datetime.date.min.toordinal() <= day + EPOCH else None
