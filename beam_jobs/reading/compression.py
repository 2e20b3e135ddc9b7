"""Recognizes the compression of a file by its first bytes and streams its uncompressed bytes."""

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO, Literal

import pyarrow as pa
from isal.igzip import IGzipFile

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.limits import UNLIMITED_BYTES, Limits

DAMAGE_ERRORS = (zlib.error, OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, ValueError)
Compression = Literal["", "gz", "bz2", "zst", "zip", "utf16"]  # UTF-16 is unpacked into UTF-8
MAGIC: dict[Compression, bytes] = {
    "gz": b"\x1f\x8b",
    "bz2": b"BZh",
    "zst": b"\x28\xb5\x2f\xfd",
    "zip": b"PK\x03\x04",
}
PACKED = tuple(MAGIC)  # endings of names of packed files
UTF16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
SHOWN_BYTES = 24
PLAIN_BLOCK, BUFFER_BYTES = 1 << 18, 1 << 16  # bytes given out at once, and taken in


def detect_compression(head: bytes) -> Compression:
    if head.startswith(UTF16):
        return "utf16"
    return next((name for name, magic in MAGIC.items() if head.startswith(magic)), "")


def refuse_bytes(head: bytes, name: str) -> UserError:
    """Return the error for a file whose first bytes are of no format that is read."""
    return UserError(
        f"{name} begins with {head[:SHOWN_BYTES]!r}, which is no format that is read; convert it "
        "to CSV, JSON lines or Parquet, or, if each line is a text, give `text`",
        "dump.format",
    )


def _open_plain(packed: BinaryIO, path: str, compression: Compression, member: str) -> Any:
    plain: Any = packed
    if not compression:
        return plain
    if compression == "gz":
        plain = IGzipFile(fileobj=packed, mode="rb")
    elif compression == "bz2":
        plain = bz2.BZ2File(packed)
    elif compression == "zst":
        plain = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")
    elif compression == "zip":
        with _open_zip(path) as archive:
            plain = archive.open(member)
    plain = io.BufferedReader(plain, BUFFER_BYTES)
    return Utf16Reader(plain) if plain.peek(2).startswith(UTF16) else plain


@lru_cache(maxsize=1)
def _read_zip(identity: storage.Identity) -> zipfile.ZipFile:
    """Open a zip file once for all its members: reading their list takes long."""
    return zipfile.ZipFile(storage.open_bytes(identity[0]))


@contextmanager
def _open_zip(path: str) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; UserError for one that is broken or cannot be read."""
    try:
        yield _read_zip(storage.describe_identity(path))
    except zipfile.BadZipFile as error:
        raise UserError(f"{path}: not a whole zip file ({error}); fetch it again") from None
    except (RuntimeError, NotImplementedError) as error:  # a password, another method than deflate
        raise UserError(f"{path}: {error}") from None


def list_zip_members(path: str) -> list[str]:
    with _open_zip(path) as archive:
        entries = archive.infolist()
    names = sorted(
        e.filename
        for e in entries
        if not e.is_dir() and e.file_size and not storage.is_no_data(e.filename)
    )
    require(names, f"{path} has no file of data")
    return names


class Utf16Reader:
    """Reads UTF-16 that begins with its mark as UTF-8; half a character at the end is damage."""

    def __init__(self, plain: io.BufferedReader) -> None:
        self._text = io.TextIOWrapper(plain, "utf-16", "surrogatepass", newline="")

    def read(self, size: int) -> bytes:
        return self._text.read(max(size // 4, 1)).encode("utf-8", "surrogatepass")


class PlainStream:
    """Reads the uncompressed bytes of a file, at most `max_expansion` times its size (0: any)."""

    def __init__(
        self,
        path: str,
        compression: Compression = "",
        member: str = "",
        max_expansion: float = 0,
        block_bytes: int | None = None,
        content: bytes | None = None,
    ) -> None:
        self._path, self._compression = path, compression
        self._packed: BinaryIO = (  # a store is not asked for `content` again
            storage.open_bytes(path, block_bytes) if content is None else io.BytesIO(content)
        )
        self._size = self._packed.seek(0, io.SEEK_END)
        self._packed.seek(0)
        with self._refuse_damage():
            self._plain = _open_plain(self._packed, path, compression, member)
        self._limits = Limits(max_expansion=max_expansion)
        self._left = sys.maxsize
        self.delivered = 0  # bytes that were read

    @contextmanager
    def _refuse_damage(self) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except DAMAGE_ERRORS as error:
            if not isinstance(error, gzip.BadGzipFile):
                storage.raise_storage_error(error, self._path)
            why = str(error) or type(error).__name__
            raise UserError(f"{self._path}: cut off or damaged ({why}); fetch it again") from None

    def read(self, size: int = PLAIN_BLOCK) -> bytes:
        """Return up to `size` bytes, and none at the end; UserError for a damaged file."""
        with self._refuse_damage():
            block = self._plain.read(min(size, PLAIN_BLOCK, self._left))
        self.delivered += len(block)
        self._left -= len(block)
        if self._compression and self.delivered > UNLIMITED_BYTES:
            self._limits.check_expansion(self._path, self._size, self.delivered)
        return bytes(block)

    def seek(self, start: int, stop: int | None = None) -> None:
        """Move to a position of a file that is not packed; what is read ends at `stop`."""
        assert self._plain is self._packed
        self._packed.seek(start)
        if stop is not None:
            self._left = stop - start

    def __enter__(self) -> "PlainStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._packed.close()
