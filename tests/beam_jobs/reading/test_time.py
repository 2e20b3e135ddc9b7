"""No record takes more than a CPU second to find, however it is made."""

import io
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from beam_jobs.reading import json_records
from beam_jobs.reading.layout import Layout
from beam_jobs.reading.lines import Tally

BYTES = 200_000


def cpu_seconds(work: Callable[[], Iterable[Any]]) -> float:
    started = time.process_time()
    for _ in work():
        pass
    return time.process_time() - started


BAD_OBJECTS = {
    "blank lines after a brace": b"{" + b"\n" * BYTES,
    "blanks after a comma": b'{"a": 1,' + b" " * BYTES,
    "lines of blanks": b"{" + b"\n \t" * (BYTES // 3),
    "braces": b"{" * (BYTES // 4),  # a record each
    "brackets": b"{[" * (BYTES // 2),
    "quotes": b'{"' * (BYTES // 2),
    "backslashes": b'{"a": "' + b"\\" * BYTES,
    "commas": b'{"a"' + b"," * BYTES,
    "a list that never ends": b'{"a": [' + b'{"b": 1},\n' * (BYTES // 10),
}


@pytest.mark.parametrize("content", BAD_OBJECTS.values(), ids=BAD_OBJECTS)
def test_objects_are_found_within_a_second(content):
    layout = Layout("json_objects")
    assert (
        cpu_seconds(lambda: json_records.read_json_objects(io.BytesIO(content), layout, Tally()))
        < 1
    )
