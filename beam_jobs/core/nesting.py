"""Reads JSON and YAML that others wrote, and goes through what they nest."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def load_json(text: str | bytes) -> Any:
    """Return what JSON says; ValueError where it is none, or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(file: Path) -> Any:
    return load_json(file.read_text(encoding="utf-8"))


def find_json(file: Path) -> Any:
    """Return the content of a file; an empty object where there is none."""
    return read_json(file) if file.is_file() else {}


def load_yaml(text: str) -> Any:
    """Return what YAML says; ValueError where it is none."""
    import yaml  # workers read none

    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


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
