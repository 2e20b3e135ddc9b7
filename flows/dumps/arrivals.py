"""Finds the dumps in the watched places, and which of them are whole as far as one can see.

Prefect has no watcher of files, and watchdog none of object stores: both are listed with fsspec.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from glob import has_magic
from pathlib import PurePosixPath
from typing import Any

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import TransientError, UserError, name_setting
from amazon_electra.beam_jobs.reading.compression import PACKED
from amazon_electra.beam_jobs.reading.formats import list_endings
from amazon_electra.flows.configuration.addresses import explain_refusal

UNFINISHED = (".", "_")
"""How names begin under which files are written before they are whole; others that are written end
otherwise than dumps, such as reviews.json.part.
"""
CLOCKS_APART = 60.0
"""Seconds by which a file server's clock may be ahead."""


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
    not_taken: str = ""
    """Why the announced dump is not among those that are whole."""


def find_arrivals(
    places: Sequence[str], settle_seconds: float, now: float, announced: str = ""
) -> Scan:
    """Return what lies in the places, apart from files that are still being written.

    `announced` is whole, as somebody says who knows; it must lie in one of the places all the same.
    """
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
    known_whole, found.not_taken = _find_announced(announced, lying)
    for path, arrival in sorted(lying.items()):
        name = path.rsplit("/", 1)[-1]
        if arrival.size == 0 or name.startswith(UNFINISHED):
            if path == known_whole:
                found.not_taken = "it is empty, or its name is that of an unfinished file"
            continue
        if why := explain_skip(arrival, 0.0 if path == known_whole else settle_seconds, now):
            found.left_alone[path] = why
        else:
            found.whole.append(arrival)
    found.not_taken = found.not_taken or found.left_alone.pop(known_whole, "")
    found.whole.sort(key=lambda arrival: (arrival.changed, arrival.path))
    return found


def _find_announced(announced: str, lying: Iterable[str]) -> tuple[str, str]:
    """Return the path that is meant; or an empty text, and why none is.

    The address is compared with what lies in the places and never opened: an event may come from
    anybody who reaches the server.
    """
    if not announced:
        return "", ""
    if refusal := explain_refusal(announced):
        return "", refusal
    wanted = _normalize(announced)
    found = next((path for path in lying if _normalize(path) == wanted), "")
    return found, "" if found else "no such file lies in one of watch.places"


def _normalize(address: str) -> str:
    """Return a form in which two names of one file are equal: no links, one name of a scheme."""
    address = address.removeprefix("file://")
    if not storage.is_remote(address):
        return os.path.realpath(address)
    scheme, _, rest = address.partition("://")
    scheme = {"az": "abfs", "abfss": "abfs"}.get(scheme.lower(), scheme.lower())
    return f"{scheme}://{rest.lstrip('/')}"


def explain_skip(arrival: NewFile, settle_seconds: float, now: float) -> str:
    """Return why a file is left alone, or an empty text if it is a dump and whole."""
    if not is_named_like_a_dump(arrival.path):
        return f"its name does not end like a dump's ({', '.join((*list_endings(), *PACKED))})"
    if "://" in arrival.path or not settle_seconds:
        return ""  # an object store shows an object when it is whole
    age = now - arrival.changed
    if age < -CLOCKS_APART:
        return f"it changed {-age:,.0f} s in the future; set its time: touch {arrival.path}"
    if age < settle_seconds:
        return f"it changed {max(age, 0):,.0f} s ago"
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
