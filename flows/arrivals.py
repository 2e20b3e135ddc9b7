"""Which dumps lie in the places that are watched, and which of them are whole as far as one can see."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from glob import has_magic
from pathlib import PurePosixPath
from typing import Any

from beam_jobs import storage
from beam_jobs.command import MayPass, UserMistake

TEXTS = ("json", "jsonl", "ndjson", "csv", "tsv", "txt", "parquet", "pq")
PACKED = ("gz", "bz2", "zst", "zip")
"""How the names of dumps end. Their format is found by content; a README beside them is no dump all the same."""
UNFINISHED = (
    *(".*", "_*", "*~", "*.tmp", "*.part", "*.partial", "*.crdownload", "*.download", "*.filepart"),
    *("*.aria2", "*.swp", "*.swx", "*.lock"),
)
"""Names under which files are written before they are whole, and of what lies beside them meanwhile."""
SURELY_SETTLED = 900.0
"""Seconds: a file that changed longer ago need not have the same size in two looks. Uploads stall for minutes."""
CLOCKS_APART = 60.0
"""Seconds by which a file server's clock may be ahead."""


@dataclass(frozen=True)
class Arrival:
    """A dump that lies there."""

    path: str
    size: int
    changed: float
    """Seconds since the epoch."""

    @property
    def key(self) -> str:
        """The same file under the same name is the same dump; a file that was replaced is a new one."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:32]

    @property
    def in_a_folder(self) -> bool:
        """An object store shows an object when it is whole; a file in a folder grows."""
        return "://" not in self.path


@dataclass
class Found:
    """What one look saw."""

    whole: list[Arrival] = field(default_factory=list)
    """Oldest first."""
    sizes: dict[str, str] = field(default_factory=dict)
    """Key by path, for the next look."""
    left_alone: dict[str, str] = field(default_factory=dict)
    """Why, by path; without those that are unfinished by their name or still empty."""
    unreachable: list[str] = field(default_factory=list)
    """Which places, and why: nothing is known of what lies there."""
    missing: list[str] = field(default_factory=list)
    """Places that are not there: nothing lies in them."""
    not_taken: str = ""
    """Why the announced dump is not among those that are whole."""


def arrivals(
    places: Iterable[str],
    settle_seconds: float,
    now: float,
    before: Mapping[str, str] | None = None,
    announced: str = "",
) -> Found:
    """Everything that lies there; what is still being written is left alone. `before`: `sizes` of the last look.

    `announced` is whole, as somebody says who knows; that it lies in one of the places is asked all the same.
    """
    found = Found()
    lying: dict[str, Arrival] = {}
    for place in places:
        try:
            listed = _listed(place)
        except (MayPass, UserMistake) as error:
            found.unreachable.append(str(error))
            continue
        if listed is None:
            found.missing.append(place)
        lying |= {arrival.path: arrival for arrival in listed or ()}
    known_whole, found.not_taken = _named(announced, lying)
    for path, arrival in sorted(lying.items()):
        name = path.rsplit("/", 1)[-1]
        if arrival.size == 0 or any(fnmatch(name, pattern) for pattern in UNFINISHED):
            if path == known_whole:
                found.not_taken = "it is empty, or named like what is not whole yet"
            continue
        found.sizes[path] = arrival.key
        seen_before = (before or {}).get(path) == arrival.key
        if why := reason(arrival, 0.0 if path == known_whole else settle_seconds, now, seen_before):
            found.left_alone[path] = why
        else:
            found.whole.append(arrival)
    found.not_taken = found.not_taken or found.left_alone.pop(known_whole, "")
    found.whole.sort(key=lambda arrival: (arrival.changed, arrival.path))
    return found


def _named(announced: str, lying: Iterable[str]) -> tuple[str, str]:
    """Which of the paths is meant; or empty, and why none is."""
    from fsspec.core import url_to_fs

    if not announced:
        return "", ""
    try:
        with storage.reaching(announced, "announced"):
            files, path = url_to_fs(announced)
            wanted = _real_path(address_of(files, path))
            is_there = files.exists(path)
    except (MayPass, UserMistake) as error:
        return "", str(error)
    for path in lying:
        if _real_path(path) == wanted:
            return path, ""
    return "", "it lies in none of watch.places" if is_there else "there is no such file"


def _real_path(address: str) -> str:
    """The folder of a store may be known by two names."""
    return address if storage.is_remote(address) else os.path.realpath(address)


def reason(arrival: Arrival, settle_seconds: float, now: float, seen_before: bool) -> str:
    """Why a file is left alone; empty where it is a dump and whole."""
    if not is_named_like_a_dump(arrival.path):
        return f"its name does not end like a dump's ({', '.join(TEXTS)}; also {', '.join(PACKED)})"
    if not arrival.in_a_folder or not settle_seconds:
        return ""
    age = now - arrival.changed
    if age < -CLOCKS_APART:
        return f"it changed {-age:,.0f} s in the future; set its time: touch {arrival.path}"
    if age < settle_seconds:
        return f"it changed {max(age, 0):,.0f} s ago"
    if age < SURELY_SETTLED and not seen_before:
        return "it is seen for the first time; the next look takes it, if it has not changed by then"
    return ""


def is_named_like_a_dump(path: str) -> bool:
    """reviews.json, reviews.json.gz, and reviews.gz, but not notes.md.gz."""
    endings = [ending[1:].lower() for ending in PurePosixPath(path).suffixes]
    packed = bool(endings) and endings[-1] in PACKED
    inner = endings[:-1] if packed else endings
    return inner[-1] in TEXTS if inner else packed


def _listed(place: str) -> list[Arrival] | None:
    """Every file of a glob, a folder or a prefix; a link counts as what it leads to. None where no such folder is."""
    from fsspec.core import url_to_fs

    with storage.reaching(place, "watch.places"):
        files, path = url_to_fs(place)
        listing = _listing(files, path)
        if not listing and not files.exists(_folder(path)):
            return None
        listed = []
        for name, given in listing.items():
            info = led_to(files, name) if given.get("islink") else given
            if info.get("type") == "file":
                listed.append(Arrival(address_of(files, name), info.get("size") or 0, changed(info)))
    return listed


def _listing(files: Any, path: str) -> dict[str, dict[str, Any]]:
    """What lies in a folder, or is named by a pattern."""
    if files.isdir(path):
        return {info["name"]: info for info in files.ls(path, detail=True)}
    return storage.matching(files, path)


def _folder(path: str) -> str:
    """The part of a pattern that stands for itself."""
    return path if not has_magic(path) else _folder(path.rpartition("/")[0])


def address_of(files: Any, name: str) -> str:
    """Of a file of a listing, as a run is given it."""
    return str(files.unstrip_protocol(name)).removeprefix("file://")


def led_to(files: Any, link: str) -> dict[str, Any]:
    """Of a link the listing describes only the link itself; nothing where it leads nowhere."""
    return dict(files.info(link)) if files.exists(link) else {}


def changed(info: Mapping[str, Any]) -> float:
    """When a file changed, as the different file systems tell it."""
    value = next((info[k] for k in ("mtime", "updated", "LastModified", "last_modified", "created") if k in info), 0.0)
    return value.timestamp() if hasattr(value, "timestamp") else float(value or 0.0)
