"""Files, local or behind fsspec (gs://, s3://, https://): reading, writing all or nothing, finding, removing.

A local file is written beside its final name, synced and renamed; a remote one is written locally and put, which
object stores do atomically. Either way, whoever finds the final name finds all of the file, after a crash too.
"""

import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec

from beam_jobs.command import MayPass, UserMistake

NETWORK_ERRORS = {
    "ClientConnectorError",
    "ConnectTimeoutError",
    "ConnectionClosedError",
    "EndpointConnectionError",
    "IncompleteRead",
    "ReadTimeoutError",
    "ServerDisconnectedError",
    "ServerTimeoutError",
}


def is_remote(path: str | os.PathLike) -> bool:
    return "://" in str(path)


def join(folder: str | os.PathLike, *names: str) -> str:
    return "/".join([str(folder).rstrip("/"), *names]) if is_remote(folder) else os.path.join(folder, *names)


def open_bytes(path: str) -> BinaryIO:
    return cast(BinaryIO, fsspec.open(path, "rb").open()) if is_remote(path) else open(path, "rb")


def read_bytes(path: str) -> bytes:
    with open_bytes(path) as file:
        return file.read()


def size_of(path: str) -> int:
    return fsspec.core.url_to_fs(path)[0].size(path) if is_remote(path) else os.path.getsize(path)


def identity_of(path: str) -> tuple[str, int, int | None]:
    """Path, bytes and, of a local file, the time of its last change (ns)."""
    return path, size_of(path), None if is_remote(path) else os.stat(path).st_mtime_ns


def exists(path: str) -> bool:
    return fsspec.core.url_to_fs(path)[0].exists(path) if is_remote(path) else os.path.exists(path)


def names_in(folder: str) -> list[str]:
    """Names in a folder, sorted; none where there is no such folder."""
    if not is_remote(folder):
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    fs, inner = fsspec.core.url_to_fs(folder)
    fs.invalidate_cache()
    return sorted(p.rstrip("/").rsplit("/", 1)[-1] for p in fs.ls(inner, detail=False)) if fs.exists(inner) else []


def remove(path: str) -> None:
    """Removes a file, or a folder with all it holds; nothing happens where there is none."""
    if is_remote(path):
        fs, inner = fsspec.core.url_to_fs(path)
        if fs.exists(inner):
            fs.rm(inner, recursive=True)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def remove_leftovers(folder: str) -> None:
    """Removes what writers that were killed have left: files under temporary names."""
    for name in names_in(folder):
        if name.startswith(".") and name.endswith(".tmp"):
            remove(join(folder, name))


def remove_named(folder: str, pattern: str) -> None:
    """Removes what has a name of the pattern, all of it: what else is in the folder is not ours."""
    for name in names_in(folder):
        if re.fullmatch(pattern, name):
            remove(join(folder, name))


def check_apart(inputs: Iterable[str], output: str) -> None:
    """An output folder is cleared of what an earlier job has written: no input may lie in it."""
    for path in inputs:
        if not is_remote(path) and not is_remote(output) and Path(path).resolve().parent == Path(output).resolve():
            raise UserMistake(f"--output {output}: {path}, an input, lies in it; give another folder")


@contextmanager
def reaching(address: str, option: str) -> Iterator[None]:
    """Tells in one line what keeps us from an object store: no package, no credentials, no bucket, no network."""
    try:
        yield
    except Exception as error:  # each store's package has exceptions of its own
        kind = MayPass if of_the_network(error) else UserMistake
        raise kind(f"{option} {address} cannot be reached: {error or type(error).__name__}") from error


def of_the_network(error: BaseException) -> bool:
    """Whether it is one of the errors, Python's, botocore's and aiohttp's, that a second attempt may not meet."""
    return isinstance(error, ConnectionError | TimeoutError) or type(error).__name__ in NETWORK_ERRORS


def raise_unless_of_content(error: Exception, path: str) -> None:
    """What a file holds may be broken, which its reader counts; that a disk or a network fails ends the job.

    Errors of the system have a number, those that decompressors raise as OSError have none.
    """
    if of_the_network(error) or (isinstance(error, OSError) and error.errno is not None):
        raise MayPass(f"{path} cannot be read to its end: {error or type(error).__name__}") from error


def check_writable(folder: str) -> None:
    """Says before the work begins that its result could not be written."""
    if is_remote(folder):
        with reaching(folder, "--output"):
            fs, probe = fsspec.core.url_to_fs(join(folder, ".writable.tmp"))
            fs.pipe_file(probe, b"")
            fs.rm_file(probe)
        return
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserMistake(f"--output {folder} cannot be written: {error.strerror or error}") from None


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Gives a local name to write to; on success the file appears under `path`, on failure nothing does."""
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            temporary = Path(folder, "part")
            yield temporary
            fs, inner = fsspec.core.url_to_fs(str(path))
            fs.put_file(str(temporary), inner)
        return
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, final)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes(path: str | os.PathLike, content: bytes) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: str | os.PathLike, content: Any) -> None:
    write_bytes(path, (json.dumps(content, ensure_ascii=False) + "\n").encode())


def expand(patterns: list[str], option: str = "--input") -> list[str]:
    """Every file that the patterns name, each once, sorted by name: the order on the command line changes nothing."""
    found: set[str] = set()
    for pattern in patterns:
        paths = expand_one(pattern, option)
        if not paths:
            raise UserMistake(f"{option} {pattern}: no such file")
        found.update(paths)
    return sorted(found, key=lambda path: (os.path.basename(path), path))


def expand_one(pattern: str, option: str = "--input") -> list[str]:
    """The files that a name or a glob stands for, with all in its folders; nothing hidden."""
    if is_remote(pattern):
        with reaching(pattern, option):
            fs, inner = fsspec.core.url_to_fs(pattern)
            found = matching(fs, inner).items()
            paths = [p for name, info in found for p in ([name] if info["type"] == "file" else fs.find(name))]
            return [str(fs.unstrip_protocol(p)) for p in paths if _is_shown(p, inner)]
    paths = [path for name in matching_here(pattern) for path in ([name] if os.path.isfile(name) else _files_in(name))]
    return [os.path.abspath(path) for path in paths if _is_shown(path, pattern)]


def matching(fs: Any, pattern: str) -> dict[str, dict[str, Any]]:
    """What a store holds by this name, or else by this glob: what is there is no pattern, whatever brackets it has."""
    return {pattern: fs.info(pattern)} if fs.exists(pattern) else dict(fs.glob(pattern, detail=True))


def matching_here(pattern: str) -> list[str]:
    """The same of local files and folders."""
    return [pattern] if os.path.exists(pattern) else glob.glob(pattern, recursive=True)


def _files_in(folder: str) -> list[str]:
    return [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]


def _is_shown(path: str, pattern: str) -> bool:
    """No part of a path that a pattern does not spell begins with a dot."""
    spelled = set(pattern.split("/"))
    *folders, name = path.split("/")
    return not name.startswith(".") and not any(f.startswith(".") and f not in {".", "..", *spelled} for f in folders)
