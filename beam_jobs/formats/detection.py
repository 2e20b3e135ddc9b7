"""Which of the published formats a file has, by its content."""

from typing import Literal

from beam_jobs.command import UserMistake
from beam_jobs.compression import Compression, open_plain
from beam_jobs.formats import fields, json_lines
from beam_jobs.formats.lines import Rejected, Tally

Format = Literal["json_lines"]
FORMATS: tuple[Format, ...] = ("json_lines",)
HEAD_BYTES = 1 << 18


def head_of(path: str, compression: Compression) -> bytes:
    with open_plain(path, compression) as stream:
        try:
            return stream.read(HEAD_BYTES)
        except (OSError, EOFError):
            return b""


def detect(path: str, compression: Compression, name: str | None) -> Format:
    head = head_of(path, compression).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not head or head.startswith(b"{"):
        return "json_lines"
    raise UserMistake(f"{path}: not one of the formats {', '.join(FORMATS)}")


def mapping(path: str, compression: Compression, found: Format, overrides: dict[str, str]) -> dict[str, str]:
    import io

    columns: set[str] = set()
    for item in json_lines.read(io.BytesIO(head_of(path, compression)), HEAD_BYTES, Tally()):
        if not isinstance(item, Rejected):
            columns |= item[1].keys()
    return fields.resolve(columns, overrides, path) if columns else {}
