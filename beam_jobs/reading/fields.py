"""Maps the columns of every format to the fields of a Review, by `names.toml` and `--columns`."""

import csv
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from typing import Any, NamedTuple

from amazon_electra.beam_jobs.core.errors import UserError, refuse, require, show_option
from amazon_electra.beam_jobs.labels.stars import MAX_CHARACTERS, Rating, parse_rating
from amazon_electra.beam_jobs.labels.values import (
    LABEL,
    MISSING,
    PATH_SIGNS,
    fold,
    join_values,
    parse_label,
    take_first_level,
)
from amazon_electra.beam_jobs.reading.format import Layout
from amazon_electra.beam_jobs.reading.lines import Item, Reject, Tally

TABLES: dict[str, Any] = tomllib.loads(
    resources.files(__package__).joinpath("names.toml").read_text(encoding="utf-8")
)
COLUMN_NAMES: dict[str, list[str]] = {f: one["names"] for f, one in TABLES["fields"].items()}
WORDS: dict[str, list[str]] = {f: one.get("words", []) for f, one in TABLES["fields"].items()}
FIELDS = tuple(COLUMN_NAMES)
OF_REVIEW = frozenset(TABLES["of_review"])
WRAPPERS = frozenset(TABLES["wrappers"])
FLIPKART = {"Rate", "Review", "Summary"}  # the text is in Summary, its title in Review
AMAZON_COLUMNS = {
    *(("reviewText", "overall"), ("review_body", "star_rating"), ("review/text", "review/score"))
}  # columns of text and stars of Amazon's releases, whose scale is known
NO_FIELDS = {"_score"}  # of search engines: how well a document answers a query
STOPS = tuple(".!?…。！？:;,)")  # how a text ends that needs no full stop
LIST = "[]"  # behind the name of a list in that of a field; then in each of its items
MAX_LISTED_COLUMNS = 50  # a file may have any number
MAX_SHOWN = 20  # in a message
ABSENT: Any = object()  # a key that no record has: the columns of a file may have any name, "" too
MAX_INTEGER_BITS = 1024  # of an identifier; Python writes no integer of more than 4,300 digits
OWN = re.compile(r"my\b", re.IGNORECASE)  # beside "My Review", "Title" is that of a product
JOIN, MARKS = "+", {"0", "1"}
"""Between columns whose texts are one, `text=pros+cons`, or whose marks are, `broken+late`."""
MIN_TEXT_WORDS = 5  # on average, of a column that seems to hold texts
FEW_WORDS, MAX_BODY_CHARACTERS = 3, 40  # a shorter body is one text with a longer title
LIST_CELL = re.compile(r"\s*\[\s*[\[({]")  # of reviews, in Python or JSON
Records = Sequence[Mapping[str, Any]]  # the first of a file


class Review(NamedTuple):
    text: Any
    title: Any
    rating: Rating | None  # as given (labels/stars.py)
    item_id: Any
    user_id: Any
    timestamp: Any
    labels: tuple[str | None, ...] = ()


def choose_text(text: Any, title: Any) -> tuple[Any, Any]:
    """Return text and title: a short body is one text with a longer title, n/a is none."""
    if not isinstance(text, str) or len(text) > MAX_BODY_CHARACTERS:
        return text, title
    body = text.strip()
    if not body or fold(body) in MISSING:
        return None, title
    if isinstance(title, str) and len(body.split()) < FEW_WORDS <= len(title.split()):
        return join_texts([title, body]), None
    return text, title


def split_joined(name: str, columns: Collection[str]) -> list[str]:
    """Return the columns that a name joins: pros and cons of `pros+cons`."""
    parts = name.split(JOIN)
    return parts if name not in columns and all(parts) else [name]


def find_texts(columns: Iterable[str], records: Records) -> list[str]:
    """Return the columns that hold mostly distinct texts, the one with the most words first."""
    found: dict[str, int] = {}
    for name in columns:
        given = [value for record in records if isinstance(value := record.get(name), str)]
        texts = [text for text in given if text.strip() and text.lstrip()[0] not in "{["]
        words = sum(len(text.split()) for text in texts)
        if words >= MIN_TEXT_WORDS * len(texts) > 0 and 2 * len(set(texts)) > len(texts):
            found[name] = words
    return sorted(found, key=found.__getitem__, reverse=True)


def holds_lists(name: str, records: Records) -> bool:
    """Return whether most values of a column are lists of reviews, written as text."""
    given = [value for one in records if isinstance(value := one.get(name), str) and value]
    return 2 * sum(map(bool, map(LIST_CELL.match, given))) > len(given)


def propose_text(columns: Iterable[str], records: Records) -> str:
    """Return what `--columns text=` may name: a pair such as pros+cons, or most words."""
    columns = list(columns)
    by_word = {strip_column_name(name): name for name in reversed(columns)}
    for pair in TABLES["pairs"]:
        both = [by_word[word] for word in pair if word in by_word]
        if len(both) == 2 and (not records or find_texts(both, records)):
            return JOIN.join(both)
    return next(iter(find_texts(columns, records)), "")


def map_columns(
    columns: Iterable[str], overrides: Mapping[str, str], file: str, records: Records = ()
) -> dict[str, str]:
    """Return which column of a file gives which field; the text must be among them. A file may lack
    the columns of labels, which give neither text nor title unless named for it.
    """
    order, columns = list(columns), set(columns)
    texts = split_joined(overrides.get("text", ""), columns)
    overrides = {
        field: name[:-1] if is_first_level(name, columns) else name
        for field, name in overrides.items()
    }
    of_labels = {f: split_joined(n, columns) for f, n in overrides.items() if f.startswith(LABEL)}
    overrides = {f: n for f, n in overrides.items() if columns.issuperset(of_labels.get(f, ()))}
    named = [n for f, n in overrides.items() if f != "text" and f not in of_labels]
    missing = ", ".join(name for name in [*filter(None, texts), *named] if name not in columns)
    why = f"{file} has no column {missing}; there are {shorten_list(columns)}"
    require(not missing, why, "columns")
    known = {"text": "Summary", "title": "Review"} if columns >= FLIPKART else {}
    start = name_list(texts[0])
    path, dot, _ = texts[0].rpartition(".")
    labels = {name for names in of_labels.values() for name in names}
    found = dict(known)
    for prefix in (start, f"{path}{dot}"):  # those in the same list, or better in the same object
        inside = {name.removeprefix(prefix) for name in columns if name.startswith(prefix)}
        words = {name.removeprefix(prefix) for name in columns - labels if name.startswith(prefix)}
        for field in (one for one in FIELDS if one not in known):
            name = find_column(field, words if field in ("text", "title") else inside)
            if field == "title":
                name = _choose_filled(field, words, name, prefix, records)
            if name:
                found[field] = f"{prefix}{name}"
    if OWN.match(found.get("text", "")) and not OWN.match(found.get("title", "")):
        found.pop("title", None)  # of a book, of a product
    found |= overrides
    if "text" not in found:
        listed = min((one for one in columns if holds_lists(one, records)), default="")
        why = f"{file}: {listed} holds lists of reviews; write a row for each review"
        require(not listed, why)
        plain = [name for name in order if LIST not in name]
        flat = [expand_record(dict(record), plain)[0] for record in records]
        entry = f"text={propose_text(order, flat) or 'NAME'}"
        if "," in entry or '"' in entry:
            entry = '"' + entry.replace('"', '""') + '"'
        raise UserError(
            f"{file}: no column is known to hold the text of a review (there are "
            f"{shorten_list(columns)}); name it with {show_option('--columns', entry)}, or leave "
            "the file out"
        )
    return found


def _choose_filled(field: str, columns: set[str], name: str, prefix: str, records: Records) -> str:
    """Return the first of the columns known for a field that most records have."""
    counts = dict[str, int]()
    while name:
        values = (unwrap(record.get(f"{prefix}{name}")) for record in records)
        counts[name] = sum(value not in (None, "") for value in values)
        name = find_column(field, columns - counts.keys())
    return max(counts, key=counts.__getitem__, default="")


def shorten_list(columns: Iterable[str]) -> str:
    """Return the names of columns, in order, of many the first."""
    names = sorted(columns)
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


def find_column(field: str, columns: set[str]) -> str:
    """Return the column of a field by its exact names, or else by its words; "" without one."""
    columns = {name for name in columns if LIST not in name} - NO_FIELDS
    if WORDS[field]:  # review_rating is nearer than rating, which may be the product's
        known = {strip_column_name(name) for name in COLUMN_NAMES[field]}
        for name in sorted(columns):
            word = strip_column_name(name)
            if word in known and name.lower().startswith("review") and word != name.lower():
                return name
    if exact := next((name for name in COLUMN_NAMES[field] if name in columns), ""):
        return exact
    by_word = {strip_column_name(name): name for name in sorted(columns, reverse=True)}
    return next((by_word[word] for word in WORDS[field] if word in by_word), "")


@lru_cache(4096)  # each file of a dump has the same ones
def strip_column_name(name: str) -> str:
    """Return the name in lower case without separators and what says that it is of a review."""
    name = name.rpartition(":")[2]  # behind a namespace of XML
    words = re.findall(r"[^\W_]+", re.sub("([a-z])([A-Z])", r"\1_\2", name).lower())
    words = words[1:] if words[:1] == ["my"] else words
    if OF_REVIEW.issuperset(words[1:]) and "." not in name:  # review.de may be a language
        words = words[:1]
    letters = "".join(words[1:] if words[1:] and words[0] == "reviews" else words)
    return re.sub("^(review|bewertungs|rezensions|kunden)", "", letters) or letters


def parse_column_overrides(text: str | None) -> dict[str, str]:
    """Turn `text=body,stars=score` into {"text": "body", "stars": "score"}; quoted as in a CSV."""
    if not text:
        return {}
    with refuse(csv.Error, message="quotes are not in order ({})", field="columns", value=text):
        [parts] = csv.reader([text], strict=True)
    pairs = [part.partition("=") for part in parts]
    wrong = [key for key, equals, name in pairs if key not in FIELDS or not equals or not name]
    why = f'write FIELD=NAME,… or "FIELD=NAME, MORE",…; fields: {", ".join(FIELDS)}'
    require(not wrong, why, "columns", ",".join(wrong))
    return {key: name for key, _, name in pairs}


def make_review_reader(
    mapping: dict[str, str],
    notes: Counter[str],
    labels: Sequence[str] = (),
    reads_titles: bool = True,
) -> Callable[[dict[str, Any]], Review]:
    """Return a function from a record to a Review, with the labels of the columns `labels`, without
    titles unless `reads_titles`. What cannot be an identifier is counted in `notes`.
    """
    own = [make_label_reader(one, mapping.get(f"{LABEL}{one}", ABSENT)) for one in labels]
    is_of_five = (mapping.get("text"), mapping.get("stars")) in AMAZON_COLUMNS
    text, title, stars, item, user, time = (mapping.get(f, ABSENT) for f in FIELDS)

    def read_review(record: dict[str, Any]) -> Review:
        if dict in map(type, record.values()):
            record = {name: unwrap(value) for name, value in record.items()}
        get = record.get
        value: Any = get(stars)
        kind = type(value)
        is_usual = kind in (int, float, bool, Decimal) or (
            kind is str and len(value) < MAX_CHARACTERS
        )
        rating = parse_rating(value) if is_usual else None
        if is_of_five and rating and not rating[1] and rating[0] <= 5:
            rating = rating[0], 5
        places = [get(item), get(user), get(time)]
        if not all(map(is_identifier, places)):
            notes["identifiers_left_out"] += 1
            places = [place if is_identifier(place) else None for place in places]
        classes = tuple(read(record) for read in own) if own else ()
        body, head = choose_text(get(text), get(title) if reads_titles else None)
        item_id, user_id, timestamp = places
        return Review(body, head, rating, item_id, user_id, timestamp, classes)

    return read_review


def is_identifier(value: Any) -> bool:
    """Return False for lists, dicts and giant integers, which cannot be written down or hashed."""
    kind = type(value)
    if kind is int:
        return value.bit_length() <= MAX_INTEGER_BITS
    return kind not in (list, dict, tuple, set)


def unwrap(value: Any) -> Any:
    """Return what an object with one key stands for: {"$oid": …} of mongoexport, {"S": "text"}."""
    while type(value) is dict and value:
        keys = [key for key in value if key != "attributes" and not key.startswith("@")]
        if len(keys) != 1 or keys[0] not in WRAPPERS:
            break
        value = value[keys[0]]
    return value


def is_first_level(label: str, columns: Collection[str]) -> bool:
    """Return whether a label such as `reason>` is the first level of the paths of a column."""
    return label.endswith(PATH_SIGNS) and label not in columns and label[:-1] in columns


def make_label_reader(label: str, column: Any) -> Callable[[Mapping[str, Any]], str | None]:
    """Return a function from a record to its class of a label as typed (`parse_label`), several
    ones, joined (`join_values`): `annotations[].choices[]` has all that it leads to, and
    `broken+late`, where no column has that name, those of its columns with a 1.
    """
    is_first = is_first_level(label, [column])

    def read_label(record: Mapping[str, Any]) -> str | None:
        value = record.get(column)
        if value is None and type(column) is str and LIST in column:
            value = list(collect_values(record, column)) or None  # nobody has labelled it
        elif value is None and type(column) is str and JOIN in column:
            marks = {one: fold(parse_label(record.get(one)) or "") for one in column.split(JOIN)}
            value = [one for one, mark in marks.items() if mark == "1"]
            if MARKS.isdisjoint(marks.values()):
                return None
        elif value == LIST:  # an empty one, in a cell
            value = []
        if isinstance(value, list | tuple):
            return join_values(map(parse_label, value))
        found = parse_label(value)
        return take_first_level(found, label[-1]) if is_first else found

    return read_label


def list_collected(layout: Layout) -> set[str]:
    """Return the columns of labels in lists without the text: all of it is of one review."""
    text = name_list(layout.text_columns[0])
    labels = {name for field, name in layout.mapping if field.startswith(LABEL) and LIST in name}
    return {name for name in labels if not text.startswith(name_list(name))}


def list_columns(layout: Layout) -> str:
    """Return the columns of a file for a message."""
    return shorten_list({*dict(layout.mapping).values(), *layout.unused}) or "no columns"


def finish_records(
    items: Iterator[Item], layout: Layout, columns: Collection[str], tally: Tally
) -> Iterator[Item]:
    """Yield the reviews of records, with the fields within others, and joined texts."""
    names = layout.read_columns.difference(columns, list_collected(layout))
    nested = sorted(name for name in names if "." in name or LIST in name)
    text, joined = dict(layout.mapping).get("text", ""), layout.text_columns
    if not (nested or layout.joined):
        yield from items
        return
    for item in items:
        if isinstance(item, Reject):
            yield item
            continue
        reviews = expand_record(item[1], nested) if nested else [item[1]]
        if not reviews:
            tally.notes["records_without_reviews"] += 1
        for review in reviews:
            if joined != (text,):
                values = (review.get(column) for column in joined)
                parts = [value for value in values if isinstance(value, str) and value.strip()]
                review[text] = join_texts(parts) if parts else None
            yield item[0], review


def join_texts(parts: Iterable[str]) -> str:
    """Return texts as one, each with a full stop that ends in none."""
    return " ".join(p if p.endswith(STOPS) else f"{p}." for p in map(str.strip, parts) if p)


def expand_record(record: dict[str, Any], names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the reviews of a record, each with the fields of these names: `review.text` is in an
    object, `products[].reviews[].text` in each object of lists. What stands where a list should is
    its only item.
    """
    paths = {name: name for name in names if name not in record}
    return [record | found for found in _expand(record, paths)]


def _expand(value: Any, paths: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield name → value at its path for each item of the innermost list."""
    found = {name: _look_up(value, path) for name, path in paths.items() if LIST not in path}
    split = {name: path.partition(LIST) for name, path in paths.items() if LIST in path}
    if not split:
        yield found
        return
    items = _look_up(value, next(iter(split.values()))[0])
    inner = {name: path.removeprefix(".") for name, (_, _, path) in split.items()}
    if items is not None and not isinstance(items, list | tuple):
        items = [items]
    for item in items or ():
        for fields in _expand(item, inner):
            yield found | fields


def _look_up(value: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        value = value.get(part) if type(value) is dict else None
    return value


def collect_values(value: Any, path: str) -> Iterator[Any]:
    """Yield all values at a path through lists, such as `annotations[].result[].choices[]`."""
    before, mark, behind = path.partition(LIST)
    found = _look_up(value, before.removeprefix("."))
    if not mark:
        yield found
    elif isinstance(found, list | tuple):
        for item in found:
            yield from collect_values(item, behind)


def name_list(name: str) -> str:
    """Return what all names of its list begin with: `reviews[].` for `reviews[].text`."""
    path, mark, _ = name.rpartition(LIST)
    return f"{path}{mark}." if mark else ""


def check_lists(names: Iterable[str], file: str) -> None:
    """Raise UserError if names go through lists of which neither is in the other."""
    lists = sorted({name_list(name) for name in names}, key=len)
    for outer, inner in pairwise(lists):
        why = f"{file}: {outer[:-1]} and {inner[:-1]} are two lists; name one's"
        require(inner.startswith(outer), why)
