"""The local copies of stage folders whose place is a bucket: checked, bounded, oldest out first.

A folder that a process reads or makes is locked (`<fingerprint>.lock`), shared or alone, and stays.
"""

import fcntl
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from beam_jobs.core.files import hash_file, stat_files, write_json
from beam_jobs.core.locks import try_lock
from beam_jobs.core.variables import read_number_variable
from flows.store.place import MANIFEST, is_stage_folder

log = logging.getLogger("amazon_electra")

VARIABLE = "AMAZON_ELECTRA_CACHE_GB"
CACHE_GB = 100.0
MAKER = ".maker"
"""In a folder that is being made: the home of who makes it."""
CHECKED = ".checked.json"
"""In a copy: what its files were like when they were compared with the manifest."""


def read_cache_bytes() -> int:
    """Return how much room the local copies may take."""
    return int(read_number_variable(VARIABLE, CACHE_GB, 0, "gigabytes") * 1e9)


class Cache:
    """The stage folders below a local folder."""

    def __init__(self, root: Path):
        self._root = root

    def mark_used(self, folder: Path) -> None:
        """Make a folder the one that goes last."""
        stamp = folder.with_suffix(".lock")
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
        os.utime(stamp, (time.time(), time.time()))

    def pin(self, folder: Path, pins: ExitStack) -> None:
        """Keep a folder until `pins` are closed."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock: IO[str] = open(folder.with_suffix(".lock"), "a+")  # noqa: SIM115 - `pins` close it
        pins.callback(lock.close)
        fcntl.flock(lock.fileno(), fcntl.LOCK_SH)

    def shrink(self, needed: int = 0) -> None:
        """Remove the folders used longest ago until `needed` bytes more are within the bound."""
        most = read_cache_bytes()
        folders = {p: measure(p) for p in self._root.glob("*/*") if self._is_copy(p)}
        total = sum(folders.values()) + needed
        for folder in sorted(folders, key=read_last_use):
            if total <= most:
                return
            if remove_unless_locked(folder):
                total -= folders[folder]

    def _is_copy(self, path: Path) -> bool:
        return path.is_dir() and is_stage_folder(path.relative_to(self._root).as_posix())


def read_last_use(folder: Path) -> float:
    """Return when a folder was used last, as the time of its lock's file (s)."""
    with suppress(FileNotFoundError):
        return folder.with_suffix(".lock").stat().st_mtime
    return 0.0


def measure(folder: Path) -> int:
    """Return the bytes of the files in a folder."""
    return sum(state.st_size for _, state in stat_files(folder, follow_links=False))


def remove_unless_locked(folder: Path) -> bool:
    """Remove a copy that no process reads or makes; return whether it is gone."""
    with open(folder.with_suffix(".lock"), "a+") as lock:
        if not try_lock(lock):
            return False
        remove_copy(folder)
    return True


def remove_copy(folder: Path) -> None:
    """Remove a local copy; what says that it is whole goes first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    (folder / MAKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


class Copies:
    """The files of one copied folder, each compared with its SHA-256 once as long as it stays."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._known: dict[str, list[Any]] = {}
        with suppress(FileNotFoundError, ValueError):
            self._known = json.loads((folder / CHECKED).read_text())

    def is_whole(self, file: Mapping[str, Any]) -> bool:
        """Return whether a file is here as the manifest lists it."""
        path = self._folder / file["path"]
        try:
            state = self._describe(file)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if self._known.get(file["path"]) == state:
            return True
        if state[0] == file["size"] and hash_file(path) == file["sha256"]:
            return True
        log.warning("%s is damaged: it is fetched again", path)
        return False

    def remember(self, files: Iterable[Mapping[str, Any]]) -> None:
        """Write down that these files are whole as they are."""
        known = self._known | {file["path"]: self._describe(file) for file in files}
        if known != self._known:
            self._known = known
            write_json(self._folder / CHECKED, known)

    def _describe(self, file: Mapping[str, Any]) -> list[Any]:
        state = (self._folder / file["path"]).stat()
        return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, file["sha256"]]
