"""One JSON object a line: the McAuley releases of 2014, 2018 and 2023."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from beam_jobs.formats.lines import Rejected, Tally, line_blocks


def read(stream: BinaryIO, longest: int, tally: Tally) -> Iterator[tuple[int, dict[str, Any]] | Rejected]:
    """Yields (line, record); blank lines are not records."""
    for block in line_blocks(stream, longest, tally):
        if isinstance(block, Rejected):
            yield block
            continue
        number, lines = block
        for i, line in enumerate(lines):
            try:
                record = orjson.loads(line)
            except ValueError:
                if line.isspace() or not line:
                    continue
                record = leniently(line, number + i, tally)
            if type(record) is dict:
                yield number + i, record
            elif isinstance(record, Rejected):
                yield record
            else:
                yield Rejected(number + i, "not a JSON object", line, len(line))


def leniently(line: bytes, number: int, tally: Tally) -> Any:
    """What orjson refuses and real dumps contain: NaN, lone surrogates, bytes that are not UTF-8, a BOM."""
    try:
        return json.loads(decode(line, tally))
    except RecursionError:
        return Rejected(number, "nested too deeply", line, len(line))
    except ValueError:
        return Rejected(number, "broken JSON", line, len(line))


def decode(raw: bytes, tally: Tally, encoding: str = "utf-8-sig") -> str:
    """As declared, else as cp1252, which every byte string is near enough to."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        tally.notes["decoded_as_cp1252"] += 1
        return raw.decode("cp1252", errors="replace")
