"""Local files that are there whole or not at all, also through a power cut; JSON files; digests."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from amazon_electra.beam_jobs.core.errors import UserError, refuse

FORMULAS = ("=", "+", "-", "@")  # what begins a cell that spreadsheets compute


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a name to write to; the file appears under `path` when the block ends well."""
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f".{final.name}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, content: Any) -> None:
    """Write `content` as indented JSON, all or nothing."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)


def check_name(path: str | os.PathLike, field: str = "") -> None:
    """Raise UserError for a name that is not UTF-8: JSON, Parquet and Beam cannot hold it."""
    if (shown := str(path)) != shown.encode(errors="replace").decode():
        mend = "not UTF-8; rename it (if it is UTF-8, set LC_ALL=C.UTF-8)"
        raise UserError(mend, field, shown) if field else UserError(f"{shown}: {mend}")


def link_path(source: Path, folder: Path) -> None:
    """Give a file, or all files of a folder, which nobody writes to any more, a second name in
    `folder`; copy them where links cannot be.
    """

    def link(name: str, target: str) -> None:
        Path(target).unlink(missing_ok=True)
        try:
            os.link(os.path.realpath(name), target)
        except OSError:  # another file system, or one without hard links
            shutil.copy2(name, target)

    folder.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, folder, copy_function=link, dirs_exist_ok=True)
    else:
        link(str(source), str(folder / source.name))


def hash_stream(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def hash_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_writable_folder(field: str, folder: Path) -> None:
    """Make a local folder for results; UserError, before anything is computed, if it cannot be."""
    with refuse(OSError, message="no files can be written there ({})", field=field, value=folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


def choose_free_name(stem: str, ending: str, taken: Container[str]) -> str:
    """Return a name that is not taken: reviews.csv, reviews-2.csv, reviews-3.csv, …"""
    name, number = f"{stem}{ending}", 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}{ending}"
    return name
