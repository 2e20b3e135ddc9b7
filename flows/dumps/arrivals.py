"""Finds the dumps in the watched places.

Prefect has no watcher of files, and watchdog none of object stores: both are listed with fsspec.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import PurePosixPath
from typing import Any

from fsspec.core import url_to_fs

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import name_setting
from amazon_electra.beam_jobs.reading.compression import PACKED
from amazon_electra.beam_jobs.reading.formats import list_endings

UNFINISHED = (".", "_")
"""How names begin under which files are written before they are whole."""
CHANGE_TIMES = ("mtime", "updated", "LastModified", "last_modified", "created")
"""What file systems call the time of the last change."""


@dataclass(frozen=True)
class NewFile:
    """A dump that lies in a watched place."""

    path: str
    size: int
    changed: float
    """Seconds since the epoch."""

    @property
    def key(self) -> str:
        """Return what identifies the dump: a file that was replaced is a new one."""
        return f"{self.path} {self.size} {self.changed}"


def find_dumps(places: Sequence[str]) -> tuple[list[NewFile], list[str]]:
    """Return what lies in the places and is named like a dump, oldest first, and sentences about
    the rest. UserError or TransientError where a place cannot be reached.
    """
    dumps, notes = dict[str, NewFile](), list[str]()
    for place in places:
        listed = _list_place(place)
        if listed is None:
            notes.append(f"there is no {place}; relative places lie in the store")
        for file in listed or ():
            readable = file.path.encode(errors="surrogateescape").decode(errors="backslashreplace")
            if not file.size or file.path.rsplit("/", 1)[-1].startswith(UNFINISHED):
                continue
            if readable != file.path:  # the bytes of names that are not UTF-8 are surrogates
                notes.append(f"left alone: {readable}: its name is not UTF-8, rename it")
            elif is_named_like_a_dump(file.path):
                dumps[file.path] = file
            else:
                endings = ", ".join((*list_endings(), *PACKED))
                notes.append(f"left alone: {file.path}: its name ends in none of {endings}")
    return sorted(dumps.values(), key=lambda file: (file.changed, file.path)), notes


def is_named_like_a_dump(path: str) -> bool:
    """Return True for reviews.json, reviews.json.gz and reviews.gz, but not for notes.md.gz."""
    endings = [ending[1:].lower() for ending in PurePosixPath(path).suffixes]
    packed = bool(endings) and endings[-1] in PACKED
    inner = endings[:-1] if packed else endings
    return inner[-1] in list_endings() if inner else packed


def _list_place(place: str) -> list[NewFile] | None:
    """Return every file of a glob, a folder or a prefix; None if there is no such folder.

    A link counts as what it leads to.
    """
    with storage.report_unreachable(name_setting("watch.places", place)):
        files, path = url_to_fs(place)
        files.invalidate_cache()  # s3fs and gcsfs keep listings for as long as the process lives
        if files.isdir(path):
            listing = {info["name"]: info for info in files.ls(path, detail=True)}
        else:
            listing = storage.match_remote(files, path)
        folder = path
        while has_magic(folder):
            folder = folder.rpartition("/")[0]
        if not listing and not files.exists(folder):
            return None
        listed = []
        for name, info in listing.items():
            if info.get("islink"):
                info = files.info(name) if files.exists(name) else {}
            if info.get("type") == "file":
                address = str(files.unstrip_protocol(name)).removeprefix("file://")
                listed.append(NewFile(address, info.get("size") or 0, _read_change_time(info)))
    return listed


def _read_change_time(info: Mapping[str, Any]) -> float:
    """Return when a file changed, in seconds since the epoch."""
    value = next((info[name] for name in CHANGE_TIMES if name in info), 0.0)
    return value.timestamp() if hasattr(value, "timestamp") else float(value or 0.0)
