"""Records are found in step with the bytes, however they are made."""

import io

import pytest

from amazon_electra.beam_jobs.reading import json_records
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import Tally
from tests.beam_jobs.cpu_time import is_linear

BYTES = 100_000


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
def test_objects_take_no_longer_than_their_length(content):
    def read(some: bytes) -> None:
        layout = Layout("json_objects")
        for _ in json_records.read_json_objects(io.BytesIO(some), layout, Tally()):
            pass

    assert is_linear(read, content, content[: len(content) // 2])
