"""Reads the date of a review as a day: ISO, Unix time, and three numbers in an order that all dates
of a dump's column show, or that `--dates` says.
"""

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from amazon_electra.beam_jobs.core.errors import UserError

Order = Literal["DMY", "MDY"]
ORDERS: tuple[Order, ...] = ("DMY", "MDY")
FORMS = "a date is read as 2015-04-03, Unix time, 3.4.2015, or by `dates` as 03/04/2015"
MAX_CHARACTERS = 100
YEARS = range(1900, 2100)
LAST_SHORT_YEAR = 68  # 69 is 1969, as POSIX has it
EPOCH = datetime.date(1970, 1, 1).toordinal()
DAYS = range(-25_567, 47_482)  # from 1900 to 2099
SECONDS_OF_A_DAY = 86_400
SERIALS = range(20_000, 80_000)
"""A spreadsheet's numbers of days, which as Unix time all are one day in 1970."""
MIN_SHARE = 0.99  # of a column's dates that must be read: the others would be taken for old ones
MAX_SHOWN = 3
MISSING = {"", "-", "--", "n/a", "na", "nan", "nat", "none", "null", "0000-00-00"}

CERTAIN = [
    re.compile(form)
    for form in (
        r"^(?P<year>\d{4})(?P<sign>[-/.]?)(?P<month>\d\d?)(?P=sign)(?P<day>\d\d?)(?!\d)",
        r"^(?P<year>\d{4})-(?P<month>\d\d)$",  # a month stands for its first day
        r"^(?P<month>\d\d?) (?P<day>\d\d?), (?P<year>\d{4})$",  # Amazon's reviewTime: 08 3, 2015
    )
]
NUMBERS = re.compile(r"(\d\d?)([-/.]) ?(\d\d?)\2 ?(\d{4}|\d\d)(?!\d)")
NUMBER = re.compile(r"-?\d{1,20}(?:\.(\d*))?(?:[eE]\+?(\d\d?))?")


class Numbers(NamedTuple):
    """The numbers of a date whose order it does not show itself: 03/04/2015, 17.12.25."""

    first: int
    second: int
    last: int
    sign: str  # what separates them

    def find_day(self, order: Order | None) -> int | None:
        """Return the day, or None where this order gives none; with points the day comes first."""
        order = order or ("DMY" if self.sign == "." else None)
        day, month = (self.first, self.second) if order == "DMY" else (self.second, self.first)
        return find_day(self.last, month, day) if order else None


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
    found = read_date(value)
    return found.find_day(order) if isinstance(found, Numbers) else found


def read_month(value: Any, order: Order | None = None) -> str | None:
    """Return the month of a timestamp, such as 2026-06; None where `parse_day` returns None."""
    day = parse_day(value, order)
    return None if day is None else _format_month(day)


@lru_cache(1 << 16)
def _format_month(day: int) -> str:
    return datetime.date.fromordinal(day + EPOCH).strftime("%Y-%m")


def read_date(value: Any) -> int | Numbers | None:
    """Return the day of a timestamp, its numbers where only the column decides the day, or None."""
    if isinstance(value, datetime.date):  # a datetime too
        return value.toordinal() - EPOCH
    if isinstance(value, str):
        return _read_text(value.strip()[:MAX_CHARACTERS])
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    if abs(value) == float("inf") or value in YEARS:
        return None
    return _read_text(str(int(value)))


@lru_cache(1 << 16)
def _read_text(text: str) -> int | Numbers | None:
    if number := NUMBER.fullmatch(text):
        return _read_number(text, number[1] or "", number[2])
    if found := NUMBERS.match(text):
        numbers = Numbers(int(found[1]), int(found[3]), int(found[4]), found[2])
        return numbers if any(numbers.find_day(order) is not None for order in ORDERS) else None
    for pattern in CERTAIN:
        if found := pattern.search(text):
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
    """Return how often each date occurs, as `read_date` reads it again; of texts that are no dates
    MAX_SHOWN are kept apart, and the others count as one.
    """
    counts, unread = Counter[str](), set[str]()
    for value in values:
        if value is None or value != value or str(value).strip().lower() in MISSING:
            continue
        found, text = read_date(value), str(value)[:40]
        if isinstance(found, int):
            text = datetime.date.fromordinal(found + EPOCH).isoformat()
        elif found:
            text = found.sign.join((str(found.first), str(found.second), f"{found.last:02}"))
        elif len(unread) < MAX_SHOWN:
            unread.add(text)
        elif text not in unread:
            text = "…"
        counts[text] += 1
    return counts


def resolve_days(counts: Mapping[str, int], order: Order | None) -> tuple[Counter[int], list[str]]:
    """Return how often each day occurs, and the counted dates that are none in this order."""
    days, unread = Counter[int](), []
    for text, n in counts.items():
        day = parse_day(text, order)
        if day is None:
            unread.append(text)
        else:
            days[day] += n
    return days, unread


def decide_order(counts: Mapping[str, int], where: str, given: Order | None = None) -> Order | None:
    """Return the order of a dump's dates by all of them (`count_dates`); None where they show it.

    Raises UserError where they leave it open, or where more than one in a hundred is no date;
    `where` names the file and the column.
    """
    total = sum(counts.values())
    order = given or _decide_order(counts, where)
    _, unread = resolve_days(counts, order)
    lost = sum(counts[text] for text in unread)
    if total and lost > (1 - MIN_SHARE) * total:
        raise UserError(
            f"{where}: {lost:,} of {total:,} are no dates, for example "
            f"{', '.join(map(repr, sorted(unread)[:MAX_SHOWN]))}; {FORMS}: name another column "
            "with `--columns timestamp=NAME`, or split by something else"
        )
    return order


def _decide_order(counts: Mapping[str, int], where: str) -> Order | None:
    """Return the order of the numbers; UserError where two are possible, or both are used."""
    found = {text: read_date(text) for text in counts}
    written = {text: one for text, one in found.items() if isinstance(one, Numbers)}
    count = sum(counts[text] for text in written)
    if count <= (1 - MIN_SHARE) * sum(counts.values()):
        return None
    unlike = {
        order: sorted(text for text, one in written.items() if one.find_day(order) is None)
        for order in ORDERS
    }
    lost = {order: sum(counts[text] for text in texts) for order, texts in unlike.items()}
    possible = [order for order in ORDERS if lost[order] <= (1 - MIN_SHARE) * count]
    possible = [order for order in possible if not lost[order]] or possible
    is_same = all(
        one.sign == "." or one.find_day("DMY") == one.find_day("MDY") for one in written.values()
    )
    if len(possible) == 1 or (possible and is_same):
        return possible[0]
    if possible:
        shown = f"none of its {count:,} dates such as {min(written)} shows whether day or month"
        raise UserError(f"{where}: {shown} comes first; give DMY or MDY", "dates")
    shown = " and ".join(texts[0] for texts in unlike.values())
    raise UserError(
        f"{where}: its dates are written in two ways, {shown}; write them in one, such as "
        "2015-04-03, or name another column with `--columns timestamp=NAME`"
    )
