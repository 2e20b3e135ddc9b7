"""JSON and YAML that others wrote: what is not taken is told, at once."""

from typing import Any

import pytest

from amazon_electra.beam_jobs.core import nesting


@pytest.mark.parametrize("text", ["[" * 100_000, "a: [", "a: !!python/object/apply:os.system [ls]"])
def test_yaml_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, check=lambda error: "\n" not in str(error)):
        nesting.load_yaml(text)


def test_json_that_is_nested_too_deeply_is_refused():
    assert nesting.load_json('{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, check=lambda error: "nested" in str(error)):
        nesting.load_json("[" * 100_000)


def test_strings_are_listed_in_order():
    content: Any = ["deep"]
    for _ in range(100_000):
        content = [content]
    given = {"a": ["b", {"c": "d"}], "e": content, "f": "g"}
    assert list(nesting.list_strings(given)) == ["b", "d", "deep", "g"]


def test_only_a_file_that_may_lack_reads_as_empty(tmp_path):
    assert nesting.find_json(tmp_path / "facts.json") == {}
    with pytest.raises(FileNotFoundError):
        nesting.read_json(tmp_path / "facts.json")
