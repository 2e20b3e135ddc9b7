"""What the error of a user's mistake says."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from amazon_electra.beam_jobs.core.errors import UserError


@contextmanager
def refuses(
    *named: object,
    field: str | None = None,
    value: object = None,
    kind: type[Exception] = UserError,
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error of one line that names files or values, and is of this field and value."""
    with pytest.raises(kind) as caught:
        yield caught
    line = str(caught.value)
    assert "\n" not in line
    assert not [name for name in map(str, named) if name not in line], line
    assert field in (None, getattr(caught.value, "field", None))
    assert value is None or str(caught.value.value) == str(value)
