"""Dumps to measure on: the user's as it is, several times as large, in eight gz files or in one."""

import gzip
import itertools
import json
import multiprocessing
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from beam_jobs.config import CorpusOptions
from beam_jobs.corpus import prepare_pass
from beam_jobs.reading import work_units
from beam_jobs.reading.work_units import DumpFile, list_dump_files
from beam_jobs.sample import sample_dump

FILES, WRITERS = 8, 2
SAMPLE_REVIEWS = 80_000  # of the synthetic dump, where no other is given
READ_BYTES = 1 << 20


def sample(path: Path, reviews: int) -> None:
    sample_dump.write_sample(path, reviews, seed=0)


def write(inputs: list[str], folder: Path, reviews: int | None, copies: int = 1) -> None:
    """Lines of JSON in eight gz files: `reviews` of the input (None: all), then perturbed copies of
    them.
    """
    folder.mkdir(parents=True)
    with multiprocessing.get_context("fork").Pool(WRITERS) as pool:
        pool.map(partial(write_part, inputs, folder, reviews, copies), range(FILES), chunksize=1)


def write_part(
    inputs: list[str], folder: Path, reviews: int | None, copies: int, part: int
) -> None:
    chosen = [
        pair
        for pair in enumerate(itertools.islice(lines(inputs), reviews))
        if pair[0] % FILES == part
    ]
    with gzip.open(folder / f"dump-{part}.json.gz", "wb", compresslevel=1) as gz:
        for copy in range(copies):
            gz.writelines(
                perturbed(line, copy, number) if copy else line for number, line in chosen
            )


def join(folder: Path, one: Path) -> None:
    """The same reviews in one gz file: gz files one after another are a gz file."""
    one.mkdir()
    with open(one / "dump.json.gz", "wb") as joined:
        for part in sorted(folder.iterdir()):
            with open(part, "rb") as file:
                shutil.copyfileobj(file, joined)


def count(inputs: list[str]) -> int:
    return sum(1 for _ in lines(inputs))


def lines(inputs: list[str]) -> Iterator[bytes]:
    """Every record as a line of JSON: as it stands in a file of such lines, in 2018's field names
    otherwise.
    """
    for file in dump_files(inputs):
        if file.layout.name == "json_lines":
            yield from raw_lines(file)
        else:
            yield from recast(file)


def dump_files(inputs: list[str]) -> list[DumpFile]:
    return list_dump_files(CorpusOptions(input=(tuple(inputs),), output="unused"))


def text_field(inputs: list[str]) -> str:
    """The JSON field that holds the text."""
    return dict(dump_files(inputs)[0].layout.mapping)["text"]


def raw_lines(file: DumpFile) -> Iterator[bytes]:
    (unit,) = whole(file)
    rest = b""
    with work_units.open_unit(unit) as stream:
        while block := stream.read(READ_BYTES):
            *found, rest = (rest + block).split(b"\n")
            yield from (line + b"\n" for line in found)
    if rest:
        yield rest + b"\n"


def whole(file: DumpFile) -> list[work_units.Unit]:
    return list(work_units._cut_by_layout(file, 1 << 62, "unused"))


def recast(file: DumpFile) -> Iterator[bytes]:
    settings: Any = prepare_pass.Preparation(
        folder="unused", bounds=(1.0,) * 4, seed=0, sample_share=0
    )
    for unit in whole(file):
        for review in prepare_pass.UnitReader(unit, settings).read_reviews():
            names = {"reviewText": review.text, "overall": review.stars, "asin": review.item_id}
            names |= {
                "reviewerID": review.user_id,
                "unixReviewTime": review.timestamp,
                "verified": review.verified,
            }
            yield json.dumps(names).encode() + b"\n"


def perturbed(line: bytes, copy: int, number: int) -> bytes:
    """Another review of the same length and vocabulary, with a misspelt word now and then."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    draw = random.Random(copy * 1_000_003 + number)
    for name, value in record.items():
        if isinstance(value, str) and value.count(" ") > 2:
            words = value.split(" ")
            for i in range(draw.randrange(3), len(words) - 1, 7):
                words[i], words[i + 1] = words[i + 1], words[i]
            for i in range(draw.randrange(20), len(words), 40):
                words[i] = words[i][::-1]
            record[name] = " ".join(words)
    return json.dumps(record).encode() + b"\n"
