"""What the error of a user's mistake says, for `pytest.raises(…, check=…)`."""

from collections.abc import Callable
from typing import Any


def names(*parts: object) -> Callable[[Any], bool]:
    """The error is one line, which names each of these: files, fields, values."""
    return lambda error: "\n" not in str(error) and all(str(part) in str(error) for part in parts)


def of_field(field: str, value: object = None) -> Callable[[Any], bool]:
    """The error is of this field, and of this value where one is given."""
    return lambda error: error.field == field and value in (None, error.value)
