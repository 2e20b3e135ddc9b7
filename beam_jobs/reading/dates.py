"""Reads the date of a review as a day, from the forms that dumps and shops write.

What could mean two days, such as 03/04/2015, is decided by all dates of a dump's column: a day
above 12 shows whether it is day or month first. What they leave open ends in one line with the
choices for `--dates`. So do numbers such as 46008, which are a spreadsheet's days if all are.

pandas and dateutil know English months only; dateparser knows all of these forms, but takes 70 to
100 seconds for 79,000 dates where this takes one.
"""

import datetime
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from amazon_electra.beam_jobs.core.errors import UserError

Order = Literal["DMY", "MDY", "YMD"]
ORDERS: tuple[Order, ...] = ("DMY", "MDY", "YMD")
FORMS = (
    "a date is read as 2015-04-03, 3.4.2015, 3 April 2015, 2015年4月3日, Unix time, or by `dates` "
    "as 03/04/2015"
)
MAX_CHARACTERS = 100
YEARS = range(1900, 2100)
LAST_SHORT_YEAR = 68  # 69 is 1969, as POSIX has it
EPOCH = datetime.date(1970, 1, 1).toordinal()
SECONDS_OF_A_DAY = 86_400
SERIAL_EPOCH = datetime.date(1899, 12, 30).toordinal() - EPOCH
SERIALS = range(20_000, 80_000)
"""Days from 1954 to 2119 as spreadsheets count them; as Unix time all are one day in 1970."""
MIN_SHARE = 0.99
"""Of a column's dates that must be read: the others would be taken for old ones."""
MAX_SHOWN = 3
UNREAD = "?"
MISSING = {"", "-", "--", "n/a", "na", "nan", "nat", "none", "null", "0000-00-00"}

NAME = r"(?P<month>[^\W\d]{3,11})"
YEAR = r"(?P<year>\d{4})"
DAY = r"(?P<day>\d\d?)(?:st|nd|rd|th|er|[.ºª°])?"
OF = r"(?:\s*\b(?:de|del|of)\b)?"
MARK = r"[\s\-/.]*"
CERTAIN = [
    re.compile(form)
    for form in (
        rf"^{YEAR}(?P<sign>[-/.]?)(?P<month>\d\d?)(?P=sign)(?P<day>\d\d?)(?!\d)",
        rf"^{YEAR}\. ?(?P<month>\d\d?)\. ?(?P<day>\d\d?)(?!\d)",
        rf"{YEAR}\s*[年년]\s*(?P<month>\d\d?)\s*[月월]\s*(?P<day>\d\d?)",
        rf"^(?P<month>\d\d?) (?P<day>\d\d?), {YEAR}$",  # reviewTime of Amazon's dumps: 08 3, 2015
        rf"\b{NAME}\.?\s{DAY},?\s{YEAR}\b",
        rf"\b(?P<day>\d\d?)(?:st|nd|rd|th|er|[.ºª°])?{OF}{MARK}{NAME}\.?,?{OF}{MARK}{YEAR}\b",
        rf"^{YEAR}{MARK}{NAME}\.?{MARK}(?P<day>\d\d?)\b",
        rf"\b{NAME} +(?P<day>\d\d?) \d\d?:\d\d(?::\d\d)?(?: [+-]?\w+)? {YEAR}\b",  # of C's ctime
        rf"^{YEAR}[-/.](?P<month>\d\d?)$",  # a month stands for its first day
        rf"^(?P<month>\d\d?)[-/.]{YEAR}$",
        rf"^{YEAR}\s*[年년]\s*(?P<month>\d\d?)\s*[月월]$",
        rf"^{NAME}\.?,?{OF}{MARK}{YEAR}(?:\s*[rг]\.)?$",
        rf"^{YEAR}{MARK}{NAME}$",
    )
]
NUMBERS = re.compile(r"(\d\d?)([-/.]) ?(\d\d?)\2 ?(\d{4}|\d\d)(?!\d)")
NUMBERS_AND_NAME = re.compile(rf"(\d\d?){MARK}{NAME}\.?{MARK}(\d\d)\b(?!:)")
NUMBER = re.compile(r"-?\d{1,20}(?:\.(\d*))?(?:[eE]\+?(\d\d?))?")
MOMENT = re.compile(r"(\d{8})[0-2]\d[0-5]\d[0-5]\d")
MONTH_NAMES = (
    "jan feb mar apr may jun jul aug sep oct nov dec",  # English
    "jan feb mär apr mai jun jul aug sep okt nov dez",  # German
    "jan fév mar avr mai juin juil aoû sep oct nov déc",  # French
    "ene feb mar abr may jun jul ago set oct nov dic",  # Spanish
    "gen feb mar apr mag giu lug ago set ott nov dic",  # Italian
    "jan fev mar abr mai jun jul ago set out nov dez",  # Portuguese
    "jan feb maa apr mei jun jul aug sep okt nov dec",  # Dutch
    "jan feb mrt apr maj jun jul aug sep okt nov dec",  # Dutch, Swedish
    "sty lut mar kwi maj cze lip sie wrz paź lis gru",  # Polish
    "oca şub mar nis may haz tem ağu eyl eki kas ara",  # Turkish
    "янв фев мар апр май июн июл авг сен окт ноя дек",  # Russian
    "янв фев мар апр мая июн июл авг сен окт ноя дек",
)


def strip_accents(text: str) -> str:
    """Return a text in small letters without accents."""
    letters = unicodedata.normalize("NFKD", text.lower())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


MONTHS = {
    strip_accents(name): number
    for names in MONTH_NAMES
    for number, name in enumerate(names.split(), 1)
}
"""By how their names begin."""


class Notation(NamedTuple):
    """How the dates of a column are written, where they alone do not say."""

    order: Order | Literal[""] = ""
    """Of day, month and year in 03/04/2015; empty: not known."""
    has_serials: bool = False
    """Whether 46008 is a spreadsheet's day."""


class Numbers(NamedTuple):
    """The numbers of a date whose order it does not show itself: 03/04/2015, 17.12.25, 25-Dec-17.
    A spreadsheet's day is the first of them.
    """

    first: int
    second: int
    last: int
    sign: str
    """What separates them; "name": the second is a month's, "": a spreadsheet's day."""

    def find_day(self, notation: Notation) -> int | None:
        """Return the day, or None where the notation gives none."""
        first, second, last, sign = self
        if not sign:
            return SERIAL_EPOCH + first if notation.has_serials else None
        order = notation.order or ("DMY" if sign in (".", "name") else "")
        if order == "DMY" or (order == "MDY" and sign == "name"):
            return find_day(last, second, first)
        if order == "MDY":
            return find_day(last, first, second)
        return find_day(first, second, last) if order == "YMD" and last < 100 else None


def find_day(year: int, month: int, day: int) -> int | None:
    """Return a day in days since 1970-01-01; None where it is none, or in no year of YEARS."""
    if year < 100:
        year += 2000 if year <= LAST_SHORT_YEAR else 1900
    try:
        return datetime.date(year, month, day).toordinal() - EPOCH if year in YEARS else None
    except ValueError:
        return None


def parse_day(value: Any, notation: Notation = Notation()) -> int | None:  # noqa: B008
    """Return the day of a timestamp in days since 1970-01-01, or None where it is no date.

    Numbers are Unix time, in seconds, or by their size in milli-, micro- or nanoseconds; those of
    eight digits are YYYYMMDD where that is a day. A month without a day is its first one.
    """
    found = read_date(value)
    return found.find_day(notation) if isinstance(found, Numbers) else found


def read_month(value: Any, notation: Notation = Notation()) -> str | None:  # noqa: B008
    """Return the month of a timestamp, such as 2026-06; None where `parse_day` returns None."""
    day = parse_day(value, notation)
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
    numbers = _read_numbers(text)
    for pattern in CERTAIN if not numbers else ():
        if found := pattern.search(text):
            given = found.groupdict()
            name = given["month"]
            month = int(name) if name.isdecimal() else find_month(name)
            day = find_day(int(given["year"]), month, int(given.get("day") or 1))
            if day is not None:
                return day
    return numbers


def _read_numbers(text: str) -> Numbers | None:
    """Return the numbers of a date in an order that is not known, if they are one in some order."""
    if found := NUMBERS.match(text):
        numbers = Numbers(int(found[1]), int(found[3]), int(found[4]), found[2])
    elif found := NUMBERS_AND_NAME.match(text):
        numbers = Numbers(int(found[1]), find_month(found["month"]), int(found[3]), "name")
    else:
        return None
    is_date = any(numbers.find_day(Notation(order)) is not None for order in ORDERS)
    return numbers if is_date else None


def _read_number(text: str, decimals: str, exponent: str | None) -> int | Numbers | None:
    number = int(float(text)) if exponent else int(text.partition(".")[0])
    unit = 10 ** max(0, int(exponent) - len(decimals)) if exponent else 1
    if number in SERIALS:
        return Numbers(number, 0, 0, "")
    digits = str(number)
    moment = MOMENT.fullmatch(digits)
    if len(digits) == 8 or moment:
        ymd = moment[1] if moment else digits
        if (day := find_day(int(ymd[:4]), int(ymd[4:6]), int(ymd[6:]))) is not None:
            return day
    if number in YEARS:
        return None
    while abs(number) >= 10**11:  # the year 5138 in seconds, 1973 in milliseconds
        number, unit = number // 1000, unit / 1000
    if unit > SECONDS_OF_A_DAY:  # 1.7E+12 is any day of three years
        return None
    day = number // SECONDS_OF_A_DAY
    return day if datetime.date.min.toordinal() <= day + EPOCH else None


def find_month(name: str) -> int:
    """Return the number of a month by its name or how that begins; 0 for other words."""
    letters = strip_accents(name)
    return next((MONTHS[letters[:n]] for n in (4, 3) if letters[:n] in MONTHS), 0)


def count_dates(values: Iterable[Any]) -> Counter[str]:
    """Return how often each date occurs, as `decode_date` reads it; of what is none MAX_SHOWN
    texts, the rest together. What is missing is not counted.
    """
    counts: Counter[str] = Counter()
    shown: set[str] = set()
    for value in values:
        if value is None or value != value or str(value).strip().lower() in MISSING:
            continue
        found = read_date(value)
        if found is None:
            text = str(value)[:40]
            shown |= {text} if len(shown) < MAX_SHOWN else set()
            counts[f"{UNREAD}{text if text in shown else ''}"] += 1
        elif isinstance(found, Numbers):
            counts[" ".join(map(str, found))] += 1
        else:
            counts[str(found)] += 1
    return counts


def decode_date(text: str) -> int | Numbers | None:
    """Return what `read_date` did."""
    if text.startswith(UNREAD):
        return None
    first, *more = text.split(" ")
    return Numbers(int(first), int(more[0]), int(more[1]), more[2]) if more else int(first)


def resolve_days(counts: Mapping[str, int], notation: Notation) -> tuple[Counter[int], int]:
    """Return how often each day occurs, and how many dates are none in this notation."""
    days: Counter[int] = Counter()
    unread = 0
    for text, n in counts.items():
        found = decode_date(text)
        day = found.find_day(notation) if isinstance(found, Numbers) else found
        if day is None:
            unread += n
        else:
            days[day] += n
    return days, unread


def decide_notation(counts: Mapping[str, int], where: str, given: Order | None = None) -> Notation:
    """Return the notation of a dump's dates by all of them, as `count_dates` has them.

    Raises UserError where they leave it open, or where more than one in a hundred is no date;
    `given` is the user's word, `where` names the file and the column.
    """
    found = {numbers: n for text, n in counts.items() if (numbers := decode_date(text))}
    total = sum(counts.values())
    written = {one: n for one, n in found.items() if isinstance(one, Numbers) and one.sign}
    serials = sum(n for one, n in found.items() if isinstance(one, Numbers) and not one.sign)
    notation = Notation(given or _decide_order(written, where, total), serials >= MIN_SHARE * total)
    _, unread = resolve_days(counts, notation)
    if total and unread > (1 - MIN_SHARE) * total:
        shown = list(dict.fromkeys(_show_unread(text, notation) for text in sorted(counts)))
        examples = ", ".join([text for text in shown if text][:MAX_SHOWN])
        raise UserError(
            f"{where}: {unread:,} of {total:,} are no dates, for example {examples}; {FORMS}: name "
            "another column with `columns='timestamp=NAME'`, or split by something else"
        )
    return notation


def _show_unread(text: str, notation: Notation) -> str:
    """Return how a date that gives no day was written, about; "" for one that does."""
    found = decode_date(text)
    if found is None:
        return repr(text.removeprefix(UNREAD)) if text != UNREAD else ""
    if isinstance(found, int) or found.find_day(notation) is not None:
        return ""
    if not found.sign:
        return f"{found.first} (a spreadsheet's number of a day?)"
    return "/".join(map(str, found[:3]))


def _decide_order(written: Mapping[Numbers, int], where: str, total: int) -> Order | Literal[""]:
    """Return in which order the numbers of dates are; raise UserError where two orders are
    possible, or more than one is used, unless these are too few to matter.
    """
    count = sum(written.values())
    fits = {
        order: sum(n for one, n in written.items() if one.find_day(Notation(order)) is not None)
        for order in ORDERS
    }
    possible = [order for order in ORDERS if fits[order] >= MIN_SHARE * count]
    possible = [order for order in possible if fits[order] == count] or possible
    if {"DMY", "MDY"}.issubset(possible):
        differ = any(
            one.find_day(Notation("DMY")) != one.find_day(Notation("MDY")) for one in written
        )
        if not differ or all(one.sign in (".", "name") for one in written):
            possible.remove("MDY")
    if "YMD" in possible and len(possible) > 1:  # a column has fewer years than days
        first, last = len({one.first for one in written}), len({one.last for one in written})
        if last * 2 <= first:
            possible.remove("YMD")
        elif first * 2 <= last:
            possible = ["YMD"]
    if not count or count <= (1 - MIN_SHARE) * total:
        return possible[0] if count and len(possible) == 1 else ""
    if len(possible) == 1:
        return possible[0]
    if possible:
        example = "/".join(map(str, next(iter(sorted(written)))[:3]))
        ways = " or ".join(f"`dates={order!r}`" for order in possible)
        raise UserError(
            f"{where}: none of its {count:,} dates such as {example} shows whether day, month or "
            f"year comes first; give {ways}"
        )
    unlike = [
        next(one for one in sorted(written) if one.find_day(Notation(order)) is None)
        for order in ORDERS[:2]
    ]
    shown = " and ".join("/".join(map(str, one[:3])) for one in unlike)
    raise UserError(
        f"{where}: its dates are written in two ways, {shown}; write "
        "them in one, such as 2015-04-03, or name another "
        "column with `columns='timestamp=NAME'`"
    )
