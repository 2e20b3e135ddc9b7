"""Reads JSON that others wrote, and goes through what they nest."""

import json
from collections.abc import Iterator
from typing import Any


def load_json(text: str) -> Any:
    """Return what JSON says; ValueError where it is none, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


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
