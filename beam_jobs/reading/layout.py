"""Holds what detection found out about a file: all that its reader needs beside the bytes."""

from dataclasses import dataclass
from typing import Any

from amazon_electra.beam_jobs.core.limits import Limits


@dataclass(frozen=True)
class Layout:
    name: str  # of the format, its class: formats.find_format
    mapping: tuple[tuple[str, str], ...] = ()  # Review field, column
    unused: tuple[str, ...] = ()  # columns that give no field, the first of them
    joined: tuple[tuple[str, tuple[str, ...]], ...] = ()  # name such as pros+cons, its columns
    found: Any = None  # what the format itself found at the beginning: a data class of its own
    encoding: str = "utf-8"  # as declared; what does not follow it is read as cp1252
    records: str = ""  # path of keys to the list of reviews, given or found
    prefix: bytes = b""  # all before the first record
    sheet: str = ""  # of a workbook; the first one
    max_record_bytes: int = Limits.max_record_bytes  # of one record
    max_expansion: float = Limits.max_expansion  # times its size that a file may expand to

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The column of the text, or those whose texts are one."""
        text = dict(self.mapping).get("text", "")
        return dict(self.joined).get(text, (text,))

    @property
    def read_columns(self) -> set[str]:
        """The columns that the records must have, for the fields of a review."""
        parts = dict(self.joined)
        return {part for _, name in self.mapping for part in parts.get(name, (name,))}
