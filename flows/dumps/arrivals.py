"""Finds the dumps in the watched places, and which of them are whole as far as one can see.

Prefect has no watcher of files, and watchdog none of object stores: both are listed with fsspec.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from glob import has_magic
from pathlib import PurePosixPath
from typing import Any

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import TransientError, UserError, name_setting
from amazon_electra.beam_jobs.reading.compression import PACKED
from amazon_electra.beam_jobs.reading.formats import list_endings

UNFINISHED = (".", "_")
"""How names begin under which files are written before they are whole; others that are written end
otherwise than dumps, such as reviews.json.part.
"""


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
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:32]


@dataclass
class Scan:
    """What one look at the places saw."""

    whole: list[NewFile] = field(default_factory=list)
    """Oldest first."""
    left_alone: dict[str, str] = field(default_factory=dict)
    """Why, by path; without those that are unfinished by their name or still empty."""
    unreachable: list[str] = field(default_factory=list)
    """Which places, and why: nothing is known of what lies there."""
    missing: list[str] = field(default_factory=list)
    """Places that are not there: nothing lies in them."""


def find_arrivals(places: Sequence[str], settle_seconds: float, now: float) -> Scan:
    """Return what lies in the places, apart from files that are still being written."""
    found = Scan()
    lying: dict[str, NewFile] = {}
    for place in places:
        try:
            listed = _list_place(place)
        except (TransientError, UserError) as error:
            found.unreachable.append(str(error))
            continue
        if listed is None:
            found.missing.append(place)
        lying |= {arrival.path: arrival for arrival in listed or ()}
    for path in list(lying):
        readable = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
        if readable != path:  # the bytes of names that are not UTF-8 are surrogates in a path
            del lying[path]
            found.left_alone[readable] = "its name is not UTF-8, rename it"
    for path, arrival in sorted(lying.items()):
        name = path.rsplit("/", 1)[-1]
        if arrival.size == 0 or name.startswith(UNFINISHED):
            continue
        if why := explain_skip(arrival, settle_seconds, now):
            found.left_alone[path] = why
        else:
            found.whole.append(arrival)
    found.whole.sort(key=lambda arrival: (arrival.changed, arrival.path))
    return found


def explain_skip(arrival: NewFile, settle_seconds: float, now: float) -> str:
    """Return why a file is left alone, or an empty text if it is a dump and whole."""
    if not is_named_like_a_dump(arrival.path):
        return f"its name does not end like a dump's ({', '.join((*list_endings(), *PACKED))})"
    if "://" in arrival.path or not settle_seconds:
        return ""  # an object store shows an object when it is whole
    age = now - arrival.changed
    if age < settle_seconds:
        return f"it changed {age:,.0f} s ago"
    return ""


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
    from fsspec.core import url_to_fs

    with storage.report_unreachable(name_setting("watch.places", place)):
        files, path = url_to_fs(place)
        files.invalidate_cache()  # s3fs and gcsfs keep listings for as long as the process lives
        if files.isdir(path):
            listing = {info["name"]: info for info in files.ls(path, detail=True)}
        else:
            listing = storage.match_remote(files, path)
        if not listing and not files.exists(_strip_pattern(path)):
            return None
        listed = []
        for name, given in listing.items():
            info = given
            if info.get("islink"):
                info = files.info(name) if files.exists(name) else {}
            if info.get("type") == "file":
                address = str(files.unstrip_protocol(name)).removeprefix("file://")
                listed.append(NewFile(address, info.get("size") or 0, _read_change_time(info)))
    return listed


def _strip_pattern(path: str) -> str:
    """Return the folder in which a pattern begins, or the path itself if it has none."""
    return path if not has_magic(path) else _strip_pattern(path.rpartition("/")[0])


def _read_change_time(info: Mapping[str, Any]) -> float:
    """Return when a file changed, in seconds since the epoch, whatever its file system calls it."""
    names = ("mtime", "updated", "LastModified", "last_modified", "created")
    value = next((info[name] for name in names if name in info), 0.0)
    return value.timestamp() if hasattr(value, "timestamp") else float(value or 0.0)
