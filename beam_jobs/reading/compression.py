"""Recognizes the compression of a file by its first bytes and streams its uncompressed bytes.

gz is read with ISA-L where the `isal` package is installed: 690 MB of review text a CPU second
against 275 of zlib. fsspec's compression registry does not replace this module: it goes by a file's
name, and neither delivers what comes before damage nor limits expansion.
"""

import bz2
import codecs
import io
import lzma
import os
import re
import shlex
import sqlite3
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.limits import UNLIMITED_BYTES, Limits

deflate: Any = zlib
with suppress(ImportError):
    from isal import isal_zlib as deflate

DAMAGE_ERRORS = (
    zlib.error,
    deflate.error,
    OSError,
    EOFError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    ValueError,
)
Compression = Literal["", "gz", "bz2", "zst", "zip", "utf16"]
"""UTF-16, as spreadsheets and app shops export it, is unpacked into UTF-8."""
MAGIC: dict[Compression, bytes] = {
    "gz": b"\x1f\x8b",
    "bz2": b"BZh",
    "zst": b"\x28\xb5\x2f\xfd",
    "zip": b"PK\x03\x04",
}
PACKED = tuple(MAGIC)
"""Endings of names of packed files."""
UTF16, UTF32 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE), codecs.BOM_UTF32_LE
SKIPPABLE_FRAME = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # of Zstandard; pzstd begins with one
MAX_ZIP_MEMBERS = 10_000
"""Each becomes a unit."""
TO_PARQUET = (
    'convert it first: python -c "import sys, pyarrow as pa, pyarrow.parquet as pq; '
    "pq.write_table(pa.ipc.{}(sys.argv[1]).read_all(), sys.argv[1] + '.parquet')\""
)
UNREADABLE: dict[bytes | tuple[bytes, ...], tuple[str, str]] = {
    b"\xfd7zXZ\0": ("packed with xz, which is not read", "unpack it first: xz -d"),
    b"\x28\xb5\x2f\xfd": ("packed twice", "unpack it first: zstd -d"),
    b"\x1f\x8b": ("packed twice", "unpack it first: gzip -d"),
    b"BZh": ("packed twice", "unpack it first: bzip2 -d"),
    b"PK\x03\x04": ("a zip file within another", "unpack it first: unzip"),
    b"PK\x05\x06": ("an empty zip file", "leave it out:"),
    b"7z\xbc\xaf\x27\x1c": ("packed with 7z, which is not read", "unpack it first: 7z x"),
    b"Rar!\x1a": ("packed with rar, which is not read", "unpack it first: unrar x"),
    b"ARROW1": ("an Arrow file", TO_PARQUET.format("open_file")),
    b"\xff\xff\xff\xff": (
        "an Arrow stream, as Hugging Face keeps data sets",
        TO_PARQUET.format("open_stream"),
    ),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": (
        "an Excel workbook",
        "save it as CSV first: libreoffice --headless --convert-to csv",
    ),
    b"ORC": ("an ORC file, which is not read", "write it as Parquet first:"),
    b"Obj\x01": ("an Avro file, which is not read", "write it as Parquet first:"),
    (b"\x80\x02", b"\x80\x03", b"\x80\x04\x95", b"\x80\x05\x95"): (
        "a pickle, which may run programs",
        "write it as Parquet where it was made:",
    ),
    b"PGDMP": ("an archive of pg_dump", "restore it, and write its table as CSV with psql:"),
    b"%PDF-": ("a PDF, which is not read", "leave it out:"),
}
"""How files begin that users have and that hold no lines of text: what each is, and what to do,
before its name.
"""
WORKBOOKS = ("xl/workbook.xml", "xl/workbook.bin", "content.xml")
"""Members of a zip file that is one of Excel (xlsx, xlsb) or LibreOffice (ods)."""
SQLITE = b"SQLite format 3"
BSON = re.compile(rb".{3}\x00[\x02\x03\x07\x10]\w+\x00", re.DOTALL)
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
CONTROLS = bytes([*range(9), *range(14, 27), *range(28, 32)])
MAX_CONTROL_SHARE = 0.05  # of the bytes of a text
PACKED_BLOCK, PLAIN_BLOCK = 1 << 17, 1 << 20  # bytes taken in and given out at once
SMALL_READ_BYTES = 1 << 11


def detect_compression(head: bytes) -> Compression:
    if SKIPPABLE_FRAME.match(head):
        return "zst"
    if head.startswith(UTF16) and not head.startswith(UTF32):
        return "utf16"
    return next((name for name, magic in MAGIC.items() if head.startswith(magic)), "")


def name_new_file(name: str, ending: str = "") -> str:
    """Return a name, as a shell takes it, for what a command makes of a file: `reviews.new.csv` of
    reviews.csv, in the folder where it is typed.
    """
    stem, dot, last = os.path.basename(name.rstrip("/")).rpartition(".")
    ending = ending or (last if dot else "txt")
    return shlex.quote(f"{stem or last}.new.{ending}")


def find_table(path: str) -> str:
    """Return the name of the table of a SQLite database that has most rows, about; TABLE where that
    is not known.
    """
    names = "select name from sqlite_master where type = 'table' order by name"
    sizes = {"TABLE": -1}
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as database,
    ):
        for (name,) in database.execute(names).fetchall():
            quoted = name.replace('"', '""')
            with suppress(sqlite3.Error):  # it has no numbers of rows
                [size] = database.execute(f'select max(rowid) from "{quoted}"').fetchone()
                sizes[name] = size or 0
    return max(sizes, key=lambda name: sizes[name])


def refuse_unless_text(head: bytes, name: str) -> None:
    """Raise UserError that names the kind of file, unless its first uncompressed bytes are text."""
    quoted = shlex.quote(name)
    for magic, (what, advice) in UNREADABLE.items():
        if head.startswith(magic):
            raise UserError(f"{name} is {what}; {advice} {quoted}")
    if head.startswith(SQLITE):
        table = find_table(name)
        select = shlex.quote('select * from "{}"'.format(table.replace('"', '""')))
        raise UserError(
            f"{name} is a SQLite database; write its table as CSV: sqlite3 -csv -header {quoted} "
            f"{select} > {shlex.quote(table)}.csv"
        )
    if BSON.match(head):
        raise UserError(
            f"{name} is BSON of mongodump; convert it first: bsondump {quoted} > reviews.json"
        )
    if head.startswith(TAR_MAGIC, TAR_MAGIC_AT):
        raise UserError(
            f"{name} is a tar archive, which is not read; unpack it first: tar -xf {quoted}"
        )
    if len(head) - len(head.translate(None, CONTROLS)) <= MAX_CONTROL_SHARE * len(head):
        return
    zeros, odd = head.count(0), head[1::2].count(0)
    if zeros > len(head) / 4 and not 0.1 < odd / zeros < 0.9:
        code = "UTF-16LE" if odd > zeros / 2 else "UTF-16BE"
        raise UserError(
            f"{name} is UTF-16 without a mark; convert it first: iconv -f {code} -t UTF-8 "
            f"{quoted} > {name_new_file(name)}"
        )
    raise UserError(f"{name} is a binary file, no text; leave it out")


def _open_decompressor(packed: BinaryIO, path: str, compression: Compression, member: str) -> Any:
    return Utf16Reader(_unpack(packed, path, compression, member)) if compression else packed


def _unpack(packed: BinaryIO, path: str, compression: Compression, member: str) -> Any:
    if compression == "gz":
        return GzReader(packed)
    if compression == "bz2":
        return bz2.BZ2File(packed)
    if compression == "zst":
        return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")
    if compression == "zip":
        with _open_zip(path) as archive:
            return archive.open(member)
    return packed


@lru_cache(maxsize=1)
def _read_zip(identity: storage.Identity) -> zipfile.ZipFile:
    """Open the zip file of `storage.describe_identity`, once for all its members: reading the list
    of them takes time that grows with their number.
    """
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
    if any(e.filename in WORKBOOKS for e in entries):
        raise UserError(
            f"{path} is a workbook; save it as CSV first: libreoffice --headless "
            f"--convert-to csv {shlex.quote(path)}"
        )
    names = sorted(
        e.filename
        for e in entries
        if not e.is_dir() and e.file_size and not storage.is_no_data(e.filename)
    )
    if not names:
        raise UserError(f"{path} holds no files; leave it out")
    if len(names) > MAX_ZIP_MEMBERS:
        raise UserError(
            f"{path} has {len(names):,} files, more than {MAX_ZIP_MEMBERS:,}; unpack it first: "
            f"unzip {shlex.quote(path)}"
        )
    return names


class GzReader:
    """Reads all members of a gz file, one after the other, in bounded memory."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._inflater, self._rest = packed, deflate.decompressobj(31), b""

    def read(self, size: int) -> bytes:
        while True:
            if not self._rest:
                self._rest = self._packed.read(PACKED_BLOCK)
            if self._inflater.eof:
                self._rest = self._rest.lstrip(b"\0")  # padding
                while not self._rest:
                    if not (block := self._packed.read(PACKED_BLOCK)):
                        return b""
                    self._rest = block.lstrip(b"\0")
                self._inflater = deflate.decompressobj(31)
            plain = self._inflater.decompress(self._rest, size)
            if not (self._rest or plain or self._inflater.eof):
                raise EOFError("cut off in the middle")
            self._rest = (
                self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
            )
            if plain:
                return plain


class Utf16Reader:
    """Reads UTF-16, whose mark at the beginning gives the order of bytes, as UTF-8; and other bytes
    as they are.
    """

    def __init__(self, plain: Any) -> None:
        self._plain, self._rest, self._begins = plain, b"", True
        self._decoder: codecs.IncrementalDecoder | None = None

    def read(self, size: int) -> bytes:
        if self._begins:
            self._begins = False
            while len(self._rest) < len(UTF16[0]) and (more := self._plain.read(PACKED_BLOCK)):
                self._rest += more
            if self._rest.startswith(UTF16) and not self._rest.startswith(UTF32):
                self._decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
                self._rest = self._decode(self._rest)
        while not self._rest:
            if not self._decoder:
                return bytes(self._plain.read(size))
            block = self._plain.read(PACKED_BLOCK)
            self._rest = self._decode(block)
            if not block:
                break
        read, self._rest = self._rest[:size], self._rest[size:]
        return read

    def _decode(self, block: bytes) -> bytes:
        """Return bytes of UTF-8; half a character at the end of the file is damage."""
        assert self._decoder
        return self._decoder.decode(block, final=not block).encode("utf-8", "surrogatepass")


class SmallReads(io.RawIOBase):
    """Reads a packed file in small steps, of which a decompressor loses the one with the damage."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed

    def read(self, size: int = -1) -> bytes:
        return self._packed.read(SMALL_READ_BYTES if size < 0 else min(size, SMALL_READ_BYTES))

    def readable(self) -> bool:
        return True


class PlainStream:
    """Reads uncompressed bytes up to the end or to damage, of which `damage` gives the reason.

    Everything before the damage is delivered: where a block cannot be read, the file is unpacked
    again in small steps up to the damage. A disk or network that fails is no damage and ends the
    job.

    The file may expand to `max_expansion` times its size (0: any). Of one in a store `block_bytes`
    are fetched ahead (`storage.open_bytes`), and none if its `content` is at hand.
    """

    def __init__(
        self,
        path: str,
        compression: Compression = "",
        member: str = "",
        max_expansion: float = 0,
        block_bytes: int | None = None,
        content: bytes | None = None,
    ) -> None:
        self._path, self._compression, self._member = path, compression, member
        self._packed: BinaryIO = (
            storage.open_bytes(path, block_bytes) if content is None else io.BytesIO(content)
        )
        self._plain = _open_decompressor(self._packed, path, compression, member)
        self._member_bytes = 0
        if compression == "zip":  # the file is no smaller, whatever its list says
            with _open_zip(path) as archive:
                listed = archive.getinfo(member).compress_size
            self._member_bytes = min(listed, storage.get_size(path))
        self._limits = Limits(max_expansion=max_expansion)
        self._block, self._left = PLAIN_BLOCK, sys.maxsize
        self.delivered = 0
        """Bytes that were read."""
        self.damage = ""

    def read(self, size: int = PLAIN_BLOCK) -> bytes:
        """Return up to `size` bytes, and none at the end."""
        if self.damage:
            return b""
        try:
            block = self._plain.read(min(size, self._block, self._left))
        except DAMAGE_ERRORS as error:
            storage.raise_storage_error(error, self._path)
            if self._compression and self._block > SMALL_READ_BYTES:
                return self._read_in_small_steps(size)
            self.damage = f"damaged file: {error or type(error).__name__}"
            return b""
        self.delivered += len(block)
        self._left -= len(block)
        if self._compression and self.delivered > UNLIMITED_BYTES:
            packed = self._member_bytes or self._packed.tell()
            self._limits.check_expansion(self._path, packed, self.delivered)
        return block

    def _read_in_small_steps(self, size: int) -> bytes:
        """Read again from the beginning of the file in small steps, to where it was and on."""
        delivered, self.delivered, self._block = self.delivered, 0, SMALL_READ_BYTES
        self._plain = None  # Arrow's stream closes the file as it goes
        self._packed.close()
        self._packed = storage.open_bytes(self._path)
        source: Any = SmallReads(self._packed)
        self._plain = _open_decompressor(source, self._path, self._compression, self._member)
        while self.delivered < delivered and self.read(delivered - self.delivered):
            pass
        return self.read(size)

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
