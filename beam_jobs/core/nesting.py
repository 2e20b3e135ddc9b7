"""Reads JSON that others wrote, and goes through what they nest."""

import json
from collections.abc import Iterator
from typing import Any


def load_json(text: str | bytes) -> Any:
    """Return what JSON says; ValueError where it is none, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def list_strings(content: Any) -> Iterator[str]:
    """Yield every string in lists and in values of mappings, at any depth, in order."""
    waiting = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list | tuple):
            waiting += reversed(value)
