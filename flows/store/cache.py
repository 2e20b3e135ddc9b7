"""The local copies of stage folders whose place is a bucket: bounded, those used longest ago go
first. A folder that a process reads or makes is locked (`<fingerprint>.lock`), shared or alone, and
stays.
"""

import fcntl
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from beam_jobs.core.files import stat_files
from beam_jobs.core.locks import try_lock
from beam_jobs.core.variables import read_number_variable
from flows.store.place import MANIFEST, is_stage_folder

VARIABLE = "AMAZON_ELECTRA_CACHE_GB"
CACHE_GB = 100.0
MAKER = ".maker"
"""In a folder that is being made: the attempt in the bucket that it belongs to."""


def use_copy(folder: Path, pins: ExitStack | None) -> None:
    """Make a folder the one that goes last; it stays until `pins` are closed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock: IO[str] = open(folder.with_suffix(".lock"), "a+")  # noqa: SIM115 - closed below or by `pins`
    os.utime(lock.fileno())
    if pins is None:
        lock.close()
    else:
        pins.callback(lock.close)
        fcntl.flock(lock.fileno(), fcntl.LOCK_SH)


def shrink(root: Path, needed: int = 0) -> None:
    """Remove the folders used longest ago until `needed` bytes more are within the bound."""
    room = read_number_variable(VARIABLE, CACHE_GB, 0, "gigabytes") * 1e9 - needed
    sizes = {
        path.with_suffix(".lock"): sum(s.st_size for _, s in stat_files(path, follow_links=False))
        for path in root.glob("*/*")
        if path.is_dir() and is_stage_folder(path.name) and path.with_suffix(".lock").exists()
    }
    for path in sorted(sizes, key=lambda lock: lock.stat().st_mtime):
        if sum(sizes.values()) <= room:
            return
        with path.open("a+") as lock:
            if try_lock(lock):
                remove_copy(path.with_suffix(""))
                sizes[path] = 0


def remove_copy(folder: Path) -> None:
    """Remove a local copy; what says that it is whole goes first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    (folder / MAKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
