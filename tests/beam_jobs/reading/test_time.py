"""Records are found in step with the bytes, however they are made: the test's time ends else."""

import io

import pytest

from amazon_electra.beam_jobs.reading import json_records
from amazon_electra.beam_jobs.reading.layout import Layout
from amazon_electra.beam_jobs.reading.lines import Tally

BYTES = 400_000
REPEATED = (  # after a beginning
    *((b"{", b"\n"), (b'{"a": 1,', b" "), (b"{", b"\n \t"), (b"", b"{"), (b"", b"{[")),
    *((b"", b'{"'), (b'{"a": "', b"\\"), (b'{"a"', b","), (b'{"a": [', b'{"b": 1},\n')),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("start", "pattern"), REPEATED)
def test_objects_take_no_longer_than_their_length(start, pattern):
    content = start + pattern * (BYTES // len(pattern) // 4)
    for _ in json_records.read_json_objects(io.BytesIO(content), Layout("json_objects"), Tally()):
        pass
