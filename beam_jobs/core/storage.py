"""Reads, writes, finds and removes files, local or behind fsspec (gs://, s3://).

A file appears whole or not at all, after a crash too: a local one is written beside its name and
renamed, a remote one is written locally and put.
"""

import glob
import itertools
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import fsspec

from amazon_electra.beam_jobs.core import files
from amazon_electra.beam_jobs.core.errors import (
    TransientError,
    UserError,
    describe_error,
    is_network_error,
    is_refusal,
    name_setting,
    refuse,
    require,
)
from amazon_electra.beam_jobs.core.files import check_name
from amazon_electra.beam_jobs.core.terminal import print

PART_BYTES = 8 << 20  # bytes that are read from a store, or sent to it, at once
READS_AT_ONCE, PATHS_AT_ONCE = 16, 32  # requests to a store under way at a time
T = TypeVar("T")
# what Spark, Hadoop, systems, office programs, Hugging Face, Kaggle and checksum tools leave
NO_DATA = re.compile(
    r"_SUCCESS|_(?:started|committed|temporary|metadata|common_metadata).*|\..*|Thumbs\.db|desktop\.ini"
    r"|.*\.(?:crc|md5|sha1|sha256|sha512|asc|sig)|(?:md5|sha1|sha256|sha512)sums?(?:\.txt)?"
    r"|(?:readme|licen[cs]e|copying|citation|changelog|notice)(?:\.(?:md|txt|rst|cff))?|~\$.*|.*~"
    r"|dataset_infos?\.json|dataset_dict\.json|dataset-metadata\.json",
    re.IGNORECASE,
)
RELIABLE_VERSIONS = ("generation", "ETag", "etag")  # fields that change with every write
VERSIONS = (
    *(*RELIABLE_VERSIONS, "Content-MD5", "LastModified", "last_modified", "Last-Modified"),
    *("updated", "mtime", "created"),
)  # the surest first
Identity = tuple[str, int, str]  # of a file: path, bytes, and its version (`describe_identity`)
Stretch = tuple[str, int, int]  # of a file: path, first byte, end
S3_PARTS = {"default_block_size": PART_BYTES, "max_concurrency": 4}  # s3fs: 50 MB, ten times
fsspec.config.conf["s3"] = S3_PARTS | fsspec.config.conf.get("s3", {})


def is_remote(path: str | os.PathLike) -> bool:
    return "://" in str(path)


def open_store(path: str | os.PathLike) -> tuple[Any, str]:
    """Return the store of a path and the path in it; no listings are kept, which grow old."""
    if not is_remote(path):
        return fsspec.filesystem("file"), os.path.abspath(path)
    return fsspec.core.url_to_fs(str(path), use_listings_cache=False)


def join_path(folder: str | os.PathLike, *names: str) -> str:
    if is_remote(folder):
        return "/".join([str(folder).rstrip("/"), *names])
    return os.path.join(folder, *names)


def open_bytes(path: str | os.PathLike, block_bytes: int | None = None) -> BinaryIO:
    """Open a file; of one in a store so many bytes are fetched ahead (None: its own default)."""
    if not is_remote(path):
        return open(path, "rb")
    fs, inner = open_store(path)
    return cast(BinaryIO, fs.open(inner, "rb", block_size=block_bytes))


def read_bytes(path: str) -> bytes:
    with open_bytes(path) as file:
        return file.read()


def read_range(path: str, start: int, stop: int) -> bytes:
    """Return a stretch of a file; of one in a store no more is fetched."""
    if is_remote(path):
        fs, inner = open_store(path)
        return cast(bytes, fs.cat_file(inner, start=start, end=stop)) if start < stop else b""
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(stop - start)


def read_first_bytes(path: str, size: int) -> bytes:
    """Return the first bytes of a file that has as many; of one in a bucket by one request."""
    if is_remote(path) and not path.startswith("http"):  # a server may send all of a file
        return read_range(path, 0, size)
    with open_bytes(path, size) as file:
        return file.read(size)


def read_each(stretches: Iterable[Stretch]) -> Iterator[bytes]:
    """Yield stretches of files in turn; of a store several are fetched at once."""
    waiting = iter(stretches)
    while group := list(itertools.islice(waiting, READS_AT_ONCE)):
        filled = [one for one in group if one[1] < one[2]]
        if len(filled) < 2 or not is_remote(filled[0][0]):
            yield from (read_range(*one) for one in group)
            continue
        paths, starts, stops = map(list, zip(*filled, strict=True))
        fs, _ = open_store(filled[0][0])
        found = iter(fs.cat_ranges(paths, starts, stops, on_error="raise"))
        yield from (next(found) if start < stop else b"" for _, start, stop in group)


def map_paths(function: Callable[[str], T], paths: Iterable[str]) -> Iterator[T]:
    """Yield what a function returns of each path, in order; in a store several at a time."""
    waiting = list(paths)
    if not any(map(is_remote, waiting)):
        yield from map(function, waiting)
        return
    with ThreadPoolExecutor(PATHS_AT_ONCE) as pool:
        for first in range(0, len(waiting), 4 * PATHS_AT_ONCE):
            yield from pool.map(function, waiting[first : first + 4 * PATHS_AT_ONCE])


def hash_file(path: str | os.PathLike) -> str:
    with open_bytes(path) as file:
        return files.hash_stream(file)


def get_size(path: str) -> int:
    fs, inner = open_store(path)
    return int(fs.size(inner))


def exists(path: str) -> bool:
    fs, inner = open_store(path)
    return bool(fs.exists(inner))


def describe_identity(path: str) -> Identity:
    """Return path, bytes and version of a file: generation, ETag or time of the last change."""
    fs, inner = open_store(path)
    return _identify(path, fs.info(inner), VERSIONS)


def _identify(path: str, info: dict[str, Any], versions: Sequence[str]) -> Identity:
    version = next((str(info[name]) for name in versions if info.get(name)), "")
    return path, info["size"], version.strip('"')


def check_unchanged(identity: Identity) -> None:
    """Raise UserError unless a file is still the one of which this is the identity."""
    path, missing = identity[0], f"{identity[0]} is not on worker {socket.gethostname()}"
    with refuse(FileNotFoundError, message=f"{missing}; put it where all read it"):
        found = describe_identity(path)
    require(identity == found, f"{path} changed while it was read; run the command again")


def list_names(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none where there is no such folder."""
    fs, inner = open_store(folder)
    if not fs.exists(inner):
        return []
    return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in fs.ls(inner, detail=False))


def remove_path(path: str) -> None:
    fs, inner = open_store(path)
    with suppress(FileNotFoundError):
        fs.rm(inner, recursive=True)


def remove_matching(folder: str, pattern: str) -> None:
    """Remove everything whose name matches the pattern; what else is in the folder is not ours."""
    for name in list_names(folder):
        if re.fullmatch(pattern, name):
            remove_path(join_path(folder, name))


@contextmanager
def report_unreachable(what: str) -> Iterator[None]:
    """Say in one line what keeps us from a store: package, credentials, bucket or network."""
    try:
        yield
    except Exception as error:  # each store's package has exceptions of its own
        kind = TransientError if is_network_error(error) else UserError
        raise kind(f"{what} cannot be reached: {describe_error(error)}") from error


def raise_storage_error(error: Exception, path: str) -> None:
    """Raise UserError or TransientError if a store, disk or network failed, and not the content,
    which readers count. What decompressors raise as OSError has neither a number nor a class of its
    own.
    """
    cause = describe_error(error)
    if is_refusal(error):
        raise UserError(f"{path} may not be read: {cause}") from error
    is_system = isinstance(error, OSError) and (error.errno or type(error) is not OSError)
    if is_network_error(error) or is_system:
        raise TransientError(f"{path} cannot be read to its end: {cause}") from error


def check_output(folder: str, inputs: Iterable[str] = ()) -> None:
    """Raise UserError if no result can be written, or an input lies there, which is cleared."""
    if is_remote(folder):
        with report_unreachable(name_setting("output", folder)):
            fs, probe = open_store(join_path(folder, ".writable.tmp"))
            fs.pipe_file(probe, b"")
            fs.rm_file(probe)
        return
    for path in inputs:
        if not is_remote(path) and Path(path).resolve().parent == Path(folder).resolve():
            raise UserError(f"{path}, an input, lies in it; give another folder", "output", folder)
    files.make_writable_folder("output", Path(folder))


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a local name to write to; the file appears under `path` when the block ends well."""
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder, "part")
            yield temporary
            fs, inner = open_store(path)
            fs.put_file(str(temporary), inner, chunksize=PART_BYTES)
        return
    with files.atomic_path(path) as temporary:
        yield temporary


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: str | os.PathLike, content: Any) -> None:
    """Write `content` as JSON; bytes of file names that are not UTF-8 stand there as escapes."""
    text = json.dumps(content, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode(errors="backslashreplace"))


def list_files(patterns: Iterable[str], field: str = "input") -> dict[str, Identity | None]:
    """Return every file that the patterns name, sorted by name, with its identity if known."""
    given, found = list(patterns), dict[str, Identity | None]()
    expanded = map_paths(lambda pattern: expand_pattern(pattern, field), given)
    for pattern, paths in zip(given, expanded, strict=True):
        require(paths, "no such file", field, pattern)
        for path in paths:
            check_name(path, field)
        found |= paths
    return dict(sorted(found.items(), key=lambda file: (os.path.basename(file[0]), file[0])))


def expand_pattern(pattern: str, field: str = "input") -> dict[str, Identity | None]:
    """Return the files of a name or glob, with all in its folders; none where nothing matches.
    Hidden files, marks and checksums are left out; stderr names the latter.
    """
    found: dict[str, Identity | None] = {}
    if not is_remote(pattern):
        for name in [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True):
            found |= dict.fromkeys([name] if os.path.isfile(name) else _walk_folder(name))
    else:
        with report_unreachable(name_setting(field, pattern)):
            fs, inner = open_store(pattern)
            try:  # a name may have brackets
                there = {inner: fs.info(inner)}
            except FileNotFoundError:
                there = fs.glob(inner, detail=True) if glob.has_magic(inner) else {}
            for name, info in there.items():
                files = {name: info} if info["type"] == "file" else fs.find(name, detail=True)
                for inside, about in files.items():
                    address = str(fs.unstrip_protocol(inside))
                    found[address] = _identify(address, about, RELIABLE_VERSIONS)
    spelled, kept, others = {".", "..", *pattern.split("/")}, dict[str, Identity | None](), []
    for path, identity in found.items():
        *folders, name = path.split("/")
        if any(one.startswith(".") and one not in spelled for one in folders) or name[:1] == ".":
            continue
        if path != pattern and is_no_data(path):
            others.append(name)
            continue
        why = "its server gives no Content-Length; fetch it first, for example by `curl -L -O`"
        require(not identity or identity[1] is not None, why, field, path)
        is_known = identity and identity[2]
        kept[path if identity else os.path.abspath(path)] = identity if is_known else None
    if others:
        where, some = name_setting(field, pattern), ", ".join(others[:3])
        print(f"{where}: {len(others)} left out, which hold no data: {some}", file=sys.stderr)
    return kept


def is_no_data(path: str) -> bool:
    """Return whether a file is by its name a mark, a checksum or of an operating system."""
    return "__MACOSX" in path.split("/") or bool(NO_DATA.fullmatch(os.path.basename(path)))


def _walk_folder(folder: str) -> Iterator[str]:
    """Yield the files below a folder, also those that links lead to."""

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be listed: {error.strerror}") from None

    for path, _, names in os.walk(folder, onerror=refuse, followlinks=True):
        yield from (os.path.join(path, name) for name in names)
