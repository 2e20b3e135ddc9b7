"""Reads the date of a review as a day, in the order of day and month that its column shows."""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal

from amazon_electra.beam_jobs.core.errors import UserError, require

Order = Literal["DMY", "MDY"]
FORMS = "a date is read as 2015-04-03, Unix time, 3.4.2015, or by `dates` as 03/04/2015"
MAX_CHARACTERS = 100
YEARS = range(1900, 2100)
LAST_SHORT_YEAR = 68  # 69 is 1969, as POSIX has it
EPOCH = datetime.date(1970, 1, 1).toordinal()
DAYS = range(-25_567, 47_482)  # from 1900 to 2099
SECONDS_OF_A_DAY = 86_400
SERIALS = range(20_000, 80_000)  # of days, in spreadsheets; as Unix time all are one day
MAX_LOST = 0.01  # of a column's dates that need not be read: the others would be taken for old ones
MAX_SHOWN = 3
MISSING = {"", "-", "--", "n/a", "na", "nan", "nat", "none", "null", "0000-00-00"}

CERTAIN = [
    re.compile(form)
    for form in (
        r"(?P<year>\d{4})(?P<sign>[-/.]?)(?P<month>\d\d?)(?P=sign)(?P<day>\d\d?)(?!\d)",
        r"(?P<year>\d{4})-(?P<month>\d\d)$",  # a month stands for its first day
        r"(?P<month>\d\d?) (?P<day>\d\d?), (?P<year>\d{4})$",  # Amazon's reviewTime: 08 3, 2015
        r"(?P<day>\d\d?)\. ?(?P<month>\d\d?)\. ?(?P<year>\d{4}|\d\d)(?!\d)",
    )
]
OPEN = re.compile(r"(\d\d?)([-/]) ?(\d\d?)\2 ?(\d{4}|\d\d)(?!\d)")  # day or month first
NUMBER = re.compile(r"-?\d{1,20}(?:\.(\d*))?(?:[eE]\+?(\d\d?))?")


def find_day(year: int, month: int, day: int) -> int | None:
    """Return a day in days since 1970-01-01; None where it is none, or in no year of YEARS."""
    if year < 100:
        year += 2000 if year <= LAST_SHORT_YEAR else 1900
    try:
        return datetime.date(year, month, day).toordinal() - EPOCH if year in YEARS else None
    except ValueError:
        return None


def parse_day(value: Any, order: Order | None = None) -> int | None:
    """Return the day of a timestamp in days since 1970-01-01, or None where it is no date. Numbers
    are Unix time, by their size in seconds to nanoseconds, or YYYYMMDD.
    """
    if isinstance(value, datetime.date):  # a datetime too
        return value.toordinal() - EPOCH
    if isinstance(value, str):
        return _read_text(value.strip()[:MAX_CHARACTERS], order)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return _read_text(str(int(value)), order)


def read_month(value: Any, order: Order | None = None) -> str | None:
    """Return the month of a timestamp, such as 2026-06; None where `parse_day` returns None."""
    day = parse_day(value, order)
    return None if day is None else datetime.date.fromordinal(day + EPOCH).isoformat()[:7]


@lru_cache(1 << 16)
def _read_text(text: str, order: Order | None) -> int | None:
    if number := NUMBER.fullmatch(text):
        return _read_number(text, number[1] or "", number[2])
    if found := OPEN.match(text):
        first, second, year = int(found[1]), int(found[3]), int(found[4])
        if not order and first != second:
            return None
        day, month = (first, second) if order == "DMY" else (second, first)
        return find_day(year, month, day)
    for pattern in CERTAIN:
        if found := pattern.match(text):
            given = found.groupdict()
            return find_day(int(given["year"]), int(given["month"]), int(given.get("day") or 1))
    return None


def _read_number(text: str, decimals: str, exponent: str | None) -> int | None:
    number = int(float(text)) if exponent else int(text.partition(".")[0])
    unit = 10 ** max(0, int(exponent) - len(decimals)) if exponent else 1
    digits = str(number)
    if len(digits) == 8:
        day = find_day(int(digits[:4]), int(digits[4:6]), int(digits[6:]))
        if day is not None:
            return day
    if number in YEARS or number in SERIALS:
        return None
    while abs(number) >= 10**11:  # the year 5138 in seconds, 1973 in milliseconds
        number, unit = number // 1000, unit / 1000
    if unit > SECONDS_OF_A_DAY:  # 1.7E+12 is any day of three years
        return None
    day = number // SECONDS_OF_A_DAY
    return day if day in DAYS else None


def count_dates(values: Iterable[Any]) -> Counter[str]:
    """Count dates as `parse_day` reads them again; of others at most MAX_SHOWN are kept apart."""
    counts, unread = Counter[str](), set[str]()
    for value in values:
        text = str(value).strip()
        if value is None or value != value or text.lower() in MISSING:
            continue
        if (day := parse_day(value)) is not None:
            text = datetime.date.fromordinal(day + EPOCH).isoformat()
        elif found := OPEN.match(text):
            text = found[0]
        elif len(unread) < MAX_SHOWN:
            unread.add(text := text[:40])
        elif text not in unread:
            text = "…"
        counts[text] += 1
    return counts


def resolve_days(counts: Mapping[str, int], order: Order | None) -> Counter[int]:
    """Return how often each day occurs, by the counts of dates and their order."""
    days = Counter[int]()
    for text, n in counts.items():
        if (day := parse_day(text, order)) is not None:
            days[day] += n
    return days


def decide_order(counts: Mapping[str, int], where: str, given: Order | None = None) -> Order | None:
    """Return the order of a dump's dates by all of them (`count_dates`); None where they show it.

    Raises UserError where they leave it open, or where more than one in a hundred is no date;
    `where` names the file and the column.
    """
    orders: list[Order | None] = [given] if given else [None, "DMY", "MDY"]
    lost = {one: [text for text in counts if parse_day(text, one) is None] for one in orders}
    sums = {one: sum(counts[text] for text in texts) for one, texts in lost.items()}
    total, best = sum(counts.values()), min(orders, key=sums.__getitem__)
    if sums[best] > MAX_LOST * total:
        raise UserError(
            f"{where}: {sums[best]:,} of {total:,} are no dates, for example "
            f"{', '.join(map(repr, sorted(lost[best])[:MAX_SHOWN]))}; {FORMS}, all in one order: "
            "name another column with `--columns timestamp=NAME`, or split by something else"
        )
    if sums[orders[0]] <= MAX_LOST * total:
        return orders[0]
    why = f"{where}: none of its dates such as {min(lost[None])} shows whether day or month"
    require(sums["DMY"] != sums["MDY"], f"{why} comes first; give DMY or MDY", "dates")
    return best
