"""What a file is packed with, by its first bytes, and the stream of what is in it.

gz goes through ISA-L where the `isal` package is installed: 690 MB of review text a CPU second, zlib's 275.
"""

import bz2
import lzma
import zipfile
import zlib
from contextlib import suppress
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from beam_jobs import storage
from beam_jobs.command import UserMistake

inflating: Any = zlib
with suppress(ImportError):
    from isal import isal_zlib as inflating

BROKEN = (zlib.error, inflating.error, OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, ValueError)
Compression = Literal["", "gz", "bz2", "zst", "zip"]
MAGIC: dict[Compression, bytes] = {"gz": b"\x1f\x8b", "bz2": b"BZh", "zst": b"\x28\xb5\x2f\xfd", "zip": b"PK\x03\x04"}
NOT_READ = {  # what has no lines to read, and how to get at them
    b"\xfd7zXZ\0": ("packed with xz, which is not read", "unpack it first: xz -d"),
    b"\x28\xb5\x2f\xfd": ("packed twice", "unpack it first: zstd -d"),
    b"\x1f\x8b": ("packed twice", "unpack it first: gzip -d"),
    b"BZh": ("packed twice", "unpack it first: bzip2 -d"),
    b"7z\xbc\xaf\x27\x1c": ("packed with 7z, which is not read", "unpack it first: 7z x"),
    b"Rar!\x1a": ("packed with rar, which is not read", "unpack it first: unrar x"),
    b"\x04\x22\x4d\x18": ("packed with lz4, which is not read", "unpack it first: lz4 -d"),
    b"\x1f\x9d": ("packed with compress, which is not read", "unpack it first: uncompress"),
    b"PK\x05\x06": ("an empty zip file", "leave it out:"),
    b"PAR1": ("a Parquet file", "give it as it is, neither packed nor in an archive:"),
    b"\xff\xfe": ("UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8"),
}
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
CONTROLS = bytes([*range(9), *range(14, 27), *range(28, 32)])
MOST_CONTROLS = 0.05  # of the bytes of a text
PACKED_BLOCK, PLAIN_BLOCK = 1 << 17, 1 << 20  # bytes taken in and given out at once
SIP_BYTES = 1 << 11
FREE_BYTES = 1 << 26  # the expansion limit does not look at what stays below


def compression_of(head: bytes) -> Compression:
    return next((name for name, magic in MAGIC.items() if head.startswith(magic)), "")


def refuse_unless_text(head: bytes, name: str) -> None:
    """Says of a file, by its first (uncompressed) bytes, what it is if it is no text that can be read."""
    for magic, (what, advice) in NOT_READ.items():
        if head.startswith(magic):
            raise UserMistake(f"{name} is {what}; {advice} {name}")
    if head.startswith(TAR_MAGIC, TAR_MAGIC_AT):
        raise UserMistake(f"{name} is a tar archive, which is not read; unpack it first: tar -xf {name}")
    if len(head) - len(head.translate(None, CONTROLS)) <= MOST_CONTROLS * len(head):
        return
    zeros, odd = head.count(0), head[1::2].count(0)
    if zeros > len(head) / 4 and not 0.1 < odd / zeros < 0.9:
        code = "UTF-16LE" if odd > zeros / 2 else "UTF-16BE"
        raise UserMistake(f"{name} is UTF-16 without a mark; convert it first: iconv -f {code} -t UTF-8 {name}")
    raise UserMistake(f"{name} is a binary file, no text; leave it out")


def open_plain(path: str, compression: Compression = "", member: str = "", most: float = 0) -> "PlainStream":
    """The uncompressed bytes of a file, at most `most` times its packed ones (0: no limit)."""
    return PlainStream(path, compression, member, most)


def _unpacked(packed: BinaryIO, path: str, compression: Compression, member: str) -> Any:
    if compression == "gz":
        return GzReader(packed)
    if compression == "bz2":
        return bz2.BZ2File(packed)
    if compression == "zst":
        return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")
    if compression == "zip":
        return _zip_member(packed, path, member)
    return packed


def _zip_member(source: BinaryIO, path: str, member: str) -> Any:
    try:
        return zipfile.ZipFile(source).open(member)
    except zipfile.BadZipFile as error:
        raise UserMistake(f"{path}: not a whole zip file ({error}); fetch it again") from None
    except (RuntimeError, NotImplementedError) as error:  # a password, another method than deflate
        raise UserMistake(f"{path}: {error}") from None


def zip_members(path: str) -> list[str]:
    with storage.open_bytes(path) as source:
        try:
            entries = zipfile.ZipFile(source).infolist()
        except zipfile.BadZipFile as error:
            raise UserMistake(f"{path}: not a whole zip file ({error}); fetch it again") from None
    return sorted(
        e.filename for e in entries if not e.is_dir() and e.file_size and not e.filename.startswith("__MACOSX")
    )


class GzReader:
    """All members of a gz file, one after the other, in bounded memory."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed, self._inflater, self._rest = packed, inflating.decompressobj(31), b""

    def read(self, size: int) -> bytes:
        while True:
            if not self._rest:
                self._rest = self._packed.read(PACKED_BLOCK)
            if self._inflater.eof:
                self._rest = self._rest.lstrip(b"\0") or self._packed.read(PACKED_BLOCK).lstrip(b"\0")  # padding
                if not self._rest:
                    return b""
                self._inflater = inflating.decompressobj(31)
            plain = self._inflater.decompress(self._rest, size)
            if not (self._rest or plain or self._inflater.eof):
                raise EOFError("cut off in the middle")
            self._rest = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
            if plain:
                return plain


class Sips:
    """A packed file a little at a time: a decompressor that meets damage loses what it made of the bytes just taken."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        return self._packed.read(SIP_BYTES if size < 0 else min(size, SIP_BYTES))

    def seek(self, position: int, whence: int = 0) -> int:
        return self._packed.seek(position, whence)

    def tell(self) -> int:
        return self._packed.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """The file is closed by whoever opened it."""


class PlainStream:
    """Reads uncompressed bytes; where the packed ones are broken or cut off it ends, and `damage` says why.

    What came before the damage is delivered, so that a dump that broke off is not lost as a whole: where a block cannot
    be read, the file is unpacked once more in small steps, up to the damage. A disk or a network that fails is no
    damage: it ends the job.
    """

    def __init__(self, path: str, compression: Compression, member: str, most: float) -> None:
        self._packed = storage.open_bytes(path)
        self._plain = _unpacked(self._packed, path, compression, member)
        self._path, self._compression, self._member, self._most = path, compression, member, most if compression else 0
        self._given = 0
        self._block = PLAIN_BLOCK
        self.damage = ""

    def read(self, size: int = PLAIN_BLOCK) -> bytes:
        """Up to `size` bytes; none at the end."""
        if self.damage:
            return b""
        try:
            block = self._plain.read(min(size, self._block))
        except BROKEN as error:
            storage.raise_unless_of_content(error, self._path)
            if self._compression and self._block > SIP_BYTES:
                return self._read_in_sips(size)
            self.damage = f"damaged file: {error or type(error).__name__}"
            return b""
        self._given += len(block)
        if self._most and self._given > FREE_BYTES and self._given > self._most * self._packed.tell():
            raise UserMistake(
                f"{self._path} expands to more than {self._most:g} times its size; "
                "if it is meant to, raise --max_expansion"
            )
        return block

    def _read_in_sips(self, size: int) -> bytes:
        """Goes back to the beginning of the file, then in small steps to where it was, and on."""
        given, self._given, self._block = self._given, 0, SIP_BYTES
        self._plain = None  # Arrow's stream closes the file as it goes
        self._packed.close()
        self._packed = storage.open_bytes(self._path)
        source: Any = self._packed if self._compression == "zip" else Sips(self._packed)
        self._plain = _unpacked(source, self._path, self._compression, self._member)
        while self._given < given and self.read(given - self._given):
            pass
        return self.read(size)

    def seek(self, position: int) -> None:
        """Only in a file that is not packed."""
        assert self._plain is self._packed
        self._packed.seek(position)

    def __enter__(self) -> "PlainStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._packed.close()
