"""Goes through what JSON or YAML nests."""

from collections.abc import Iterator
from typing import Any


def list_strings(content: Any) -> Iterator[str]:
    """Yield every string in lists and in values of mappings, at any depth, in order."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for value in content.values():
            yield from list_strings(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from list_strings(value)
