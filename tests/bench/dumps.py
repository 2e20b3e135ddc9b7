"""The dump that all sides of a bench read: JSON lines in 2018's field names, in eight gz files.

Where more reviews are wanted than there are, the further ones are new texts: sentences of a review
in another order, and in every fortieth place a word blended of the halves of two. So new words and
new contexts go on coming, as in more of the same language, and no memory of words is flattered.
"""

import gzip
import json
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

FILES = 8
WORDS_A_BLEND = 40
SENTENCE_END = re.compile(r"(?<=[.!?]) +")
FIELDS = {
    "reviewText": "text",
    "overall": "rating",
    "asin": "parent_asin",
    "reviewerID": "user_id",
    "unixReviewTime": "timestamp",
}
"""Names of the dumps of 2018, and of 2023."""


def write_dump(inputs: list[str], folder: Path, reviews: int | None = None) -> int:
    """Write as many reviews as wanted (None: all), those of the input first; return how many.

    `inputs` are files of JSON lines with a text each, gz or plain.
    """
    folder.mkdir(parents=True)
    found = (
        record for path in inputs for line in read_lines(path) if (record := read_record(line))
    )
    records = list(islice(found, reviews))
    wanted = len(records) if reviews is None else reviews
    with ExitStack() as opened:
        files = [
            opened.enter_context(gzip.open(folder / f"dump-{n}.json.gz", "wb", compresslevel=1))
            for n in range(FILES)
        ]
        for number, record in enumerate(list_reviews(records, wanted)):
            files[number % FILES].write(json.dumps(record).encode() + b"\n")
    return wanted


def read_lines(path: str) -> Iterator[str]:
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
        yield from file


def read_record(line: str) -> dict[str, Any] | None:
    """Return a review's fields; None for a line without a text."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    record = {name: found.get(name, found.get(other)) for name, other in FIELDS.items()}
    return record if record["reviewText"] else None


def list_reviews(records: list[dict[str, Any]], reviews: int) -> Iterator[dict[str, Any]]:
    yield from records
    draw = random.Random(0)
    for number in range(len(records), reviews):
        record = records[number % len(records)]
        text = perturb_text(record["reviewText"], draw)
        yield record | {"reviewText": text, "reviewerID": f"R{number}"}


def perturb_text(text: str, draw: random.Random) -> str:
    """Return another text of about the same words, with words and contexts that are new."""
    sentences = SENTENCE_END.split(text)
    draw.shuffle(sentences)
    words = " ".join(sentences).split(" ")
    for place in range(draw.randrange(WORDS_A_BLEND), len(words), WORDS_A_BLEND):
        other = draw.choice(words)
        words[place] = words[place][: len(words[place]) // 2 + 1] + other[len(other) // 2 :]
    return " ".join(words)
