"""Whatever the size of the units, a file has the records and rejects that it has as one unit."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.reading import work_units
from amazon_electra.beam_jobs.reading.lines import Tally
from tests.beam_jobs.dumps import look_at

ODD = ['55" TV', '"so" he said', "good", "C:\\", 'end\\"', "a, b; c", "line\nend", "\n\n", "{", "}"]
LIKE_RECORDS = ["é", "stars,text", "5,fine", "[1]", "''", ": ", '"', '""', "\r"]
WORDS = st.sampled_from([*ODD, *LIKE_RECORDS])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=12, max_size=40)


def flat(text):
    return " ".join(text.split())


def quote(text):
    return '"' + text.replace('"', '""') + '"'


WRITERS = {
    "json_lines": lambda texts: "".join(json.dumps({"text": t, "stars": 4}) + "\n" for t in texts),
    "json_array": lambda texts: json.dumps([{"text": t, "a": {"b": [t]}} for t in texts], indent=1),
    "python_lines": lambda texts: "".join(repr({"text": t, "stars": 4}) + "\n" for t in texts),
    "quoted_csv": lambda texts: "stars,text,n\n" + "".join(f"4,{quote(t)},1\n" for t in texts),
    "unquoted_csv": lambda texts: (
        "stars;text;n\n" + "".join(f'4;55" {flat(t)};"x"\n' for t in texts if ";" not in t)
    ),
    "mixed_csv": lambda texts: (
        "stars,text,n\n"
        + "".join(
            f"4,{quote(t) if i % 3 else flat(t.replace(',', ''))},1\n" for i, t in enumerate(texts)
        )
    ),
    "spark_csv": lambda texts: (
        "stars,text,n\n"
        + "".join('4,"' + t.replace("\\", "\\\\").replace('"', '\\"') + '",1\n' for t in texts)
    ),
    "broken_csv": lambda texts: "stars,text,n\n" + "".join(f'4,"{t},1\n' for t in texts),
    "tsv": lambda texts: "stars\ttext\n" + "".join(f"4\t{flat(t)}\n" for t in texts),
    "fasttext": lambda texts: "".join(f"__label__2 T: {flat(t)}\n" for t in texts),
    "snap": lambda texts: "\n".join(f"review/score: 4.0\nreview/text: {flat(t)}\n" for t in texts),
}


def read(units):
    """Return all records and rejects, with their line in the file."""
    lines, found = 0, []
    for unit in units:
        tally = Tally()
        for item in work_units.read_records(unit, tally):
            found.append((lines + item[0], item[1]))  # the record, or why it is rejected
        lines += tally.lines
    return found


@pytest.mark.parametrize("name", WRITERS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(texts=TEXTS, size=st.integers(30, 400))
def test_any_size_of_units_gives_the_records_of_one(tmp_path, name, texts, size):
    path = tmp_path / "d"
    path.write_text(WRITERS[name](texts), newline="")
    try:
        file = look_at(path)
    except UserError:
        return  # such as a file of which no record can be read
    whole = work_units.Unit(file, 0, file.path, "", 0, None, file.size)
    units = list(work_units._cut_by_layout(file, size, ""))
    assert read(units) == read([whole])
