"""Others' text where a person reads it. A terminal obeys escape sequences, and marks of direction
show a name as another one: both are written as escapes, `\\x1b` and `\\u202e`.
"""

import builtins
import re
from typing import TextIO

UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls but for the line end and the tab, separators, marks of direction, lone surrogates."""


def escape_controls(text: str) -> str:
    """Return text with `\\x1b` for a control and `\\u202e` for the rest; JSON stays JSON."""

    def escape(found: re.Match[str]) -> str:
        number = ord(found[0])
        return f"\\x{number:02x}" if number < 0x20 else f"\\u{number:04x}"

    return UNSAFE.sub(escape, text)


def print(*values: object, file: TextIO | None = None, flush: bool = False) -> None:
    """Print what may hold others' text: as the built-in print, but with `escape_controls`."""
    builtins.print(*(escape_controls(str(value)) for value in values), file=file, flush=flush)
