"""Check that a fetched file is whole: its checksum, and that a gzip file unpacks to its end."""

import gzip
import zlib
from pathlib import Path

from beam_jobs.job.files import hash_file

BLOCK = 8 << 20
"""Bytes that are unpacked at a time."""


class TransferFailed(RuntimeError):
    """The file could not be had; what arrived is kept unless it was wrong."""


def check_checksum(path: Path, sha256: str | None) -> None:
    """Raise TransferFailed if a file has another SHA-256 than the one published, if one is."""
    if sha256 is None:
        return
    found = hash_file(path)
    if found != sha256.lower():
        raise TransferFailed(
            f"{path}: SHA-256 is {found}, expected {sha256}; the file was not accepted"
        )


def check_gzip(path: Path) -> None:
    """Raise TransferFailed if a gzip file does not unpack to its end."""
    try:
        with gzip.open(path, "rb") as file:
            while file.read(BLOCK):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise TransferFailed(
            f"{path}: not a whole gzip file ({error}); it was removed, fetch it again"
        ) from error
