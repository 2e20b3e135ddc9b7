"""JSON and YAML that others wrote: what is not taken is told, at once."""

from typing import Any

import pytest

from amazon_electra.beam_jobs.core.nesting import list_strings, load_json
from amazon_electra.model.yaml_text import load_yaml


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "nested"),
        ("a: [", "parsing"),
        ("a: !!python/object/apply:os.system [ls]", "constructor"),
    ],
)
def test_yaml_that_cannot_be_read_is_refused(text, told):
    with pytest.raises(ValueError, match=told) as refused:
        load_yaml(text)
    assert "\n" not in str(refused.value)


def test_json_that_is_nested_too_deeply_is_refused():
    assert load_json('{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="nested"):
        load_json("[" * 100_000)


def test_strings_are_listed_in_order_however_deep_they_lie():
    content: Any = ["deep"]
    for _ in range(100_000):
        content = [content]
    given = {"a": ["b", {"c": "d"}], "e": content, "f": "g"}
    assert list(list_strings(given)) == ["b", "d", "deep", "g"]
