"""JSON and YAML that others wrote: what is not taken is told, at once."""

from typing import Any

import pytest

from amazon_electra.beam_jobs.core.nesting import list_strings, load_json
from amazon_electra.model.yaml_text import load_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, r"line \d.*100,000"),
        ("arms: &a\n  - *a\n", "line 1"),
        ("a: &a {b: {c: *a}}", "itself"),
        ("[" * 100_000, "nested"),
        ("a: [", "parsing"),
        ("a: !!python/object/apply:os.system [ls]", "constructor"),
    ],
)
def test_yaml_that_says_too_much_is_refused(text, told):
    with pytest.raises(ValueError, match=told) as refused:
        load_yaml(text)
    assert "\n" not in str(refused.value)


def test_aliases_and_merges_of_a_common_size_are_taken():
    text = "a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}\n"
    assert load_yaml(text) == {"a": {"x": 1}, "b": [{"x": 1}] * 2, "c": {"x": 1, "y": 2}}
    assert load_yaml("") is None


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
