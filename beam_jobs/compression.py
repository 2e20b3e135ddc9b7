"""What a file is packed with, by its first bytes, and the stream of what is in it."""

import gzip
from typing import BinaryIO, Literal, cast

from beam_jobs import storage

Compression = Literal["", "gz", "bz2", "zst", "zip"]
MAGIC: dict[Compression, bytes] = {"gz": b"\x1f\x8b", "bz2": b"BZh", "zst": b"\x28\xb5\x2f\xfd", "zip": b"PK\x03\x04"}


def compression_of(head: bytes) -> Compression:
    return next((name for name, magic in MAGIC.items() if head.startswith(magic)), "")


def open_plain(path: str, compression: Compression = "") -> BinaryIO:
    """The uncompressed bytes of a file."""
    if compression == "gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=storage.open_bytes(path)))
    return storage.open_bytes(path)
