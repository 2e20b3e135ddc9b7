"""Public review dumps by name (public_dumps.yaml), and how one is fetched.

A file appears under its name when it is whole. What has arrived lies in NAME.part; the next
attempt, in this process or a later one, asks for the rest. The hub's files are fetched by
huggingface_hub, which does the same in a cache of its own beside them.
"""

import gzip
import os
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import fsspec
import yaml

from beam_jobs.core import storage
from beam_jobs.core.errors import JobFailed, TransientError, UserError, describe_error
from beam_jobs.core.files import hash_file
from beam_jobs.core.hosts import check_host
from beam_jobs.core.locks import try_lock
from beam_jobs.core.progress import track_progress
from flows.configuration.addresses import explain_refusal

HUB = "hf://datasets/"
BLOCK = 1 << 20  # bytes
ATTEMPTS = 8  # in a row without one new byte
LONGEST_WAIT = 60.0  # seconds between two attempts
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=60.0, sock_read=60.0)  # seconds
SIGNS = ("ETag", "etag", "generation", "Last-Modified", "LastModified", "mtime", "created")
"""Of a version of a file, as fsspec's packages name them."""


def read_releases() -> dict[str, dict[str, Any]]:
    """Return release → about, address, reviews: category → how many, None where it is not known."""
    releases = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    for release in releases.values():
        if other := release.pop("categories_of", ""):
            release["reviews"] = dict.fromkeys(releases[other]["reviews"])
    return dict(releases)


def find_address(name: str) -> str:
    """Return the address of a named dump (`2023/All_Beauty`); an address is its own."""
    if urlsplit(name).scheme:
        if why := explain_refusal(name):
            raise UserError(f"{name}: {why}")
        return name
    wanted, _, category = name.partition("/")
    releases = read_releases()
    if wanted not in releases:
        raise UserError(
            f"{name}: no such release; there are {', '.join(releases)}: see `amazon-electra dumps "
            "list`"
        )
    known = {c.lower(): c for c in releases[wanted]["reviews"]}
    if category.lower() not in known:
        raise UserError(
            f"{name}: no such category in {wanted}; see `amazon-electra dumps list --release "
            f"{wanted}`"
        )
    return str(releases[wanted]["address"]).format(category=known[category.lower()])


def fetch_dump(
    address: str, folder: Path, sha256: str = "", sleep: Callable[[float], None] = time.sleep
) -> Path:
    """Fetch a file into a folder unless it is there, and return its path.

    Raises UserError for a wrong address or a full disk, TransientError if the server does not give
    all of it, JobFailed if the file is not the one that was asked for.
    """
    name = unquote(urlsplit(address).path).rstrip("/").rpartition("/")[2]
    if name in ("", ".", "..") or "\\" in name or "\0" in name:
        raise UserError(f"{address}: the address must end in a file's name")
    target = folder / name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if address.startswith(HUB):
            _fetch_from_hub(address, target)
        else:
            _fetch_from_server(address, target, sleep)
    if sha256 and (found := hash_file(target)) != sha256.lower():
        target.unlink()
        raise JobFailed(f"{target}: SHA-256 is {found}, expected {sha256}; the file was removed")
    return target


def _fetch_from_hub(address: str, target: Path) -> None:
    from huggingface_hub import hf_hub_download

    owner, repository, file = address.removeprefix(HUB).split("/", 2)
    cache = target.with_name(f"{target.name}.part")
    wanted: dict[str, Any] = {
        "repo_id": f"{owner}/{repository}",
        "filename": file,
        "repo_type": "dataset",
    }
    try:
        about = hf_hub_download(**wanted, local_dir=cache, dry_run=True)
        _check_room(cache.parent, about.file_size)
        os.replace(hf_hub_download(**wanted, local_dir=cache), target)
    except OSError as error:  # of the network and of the hub too
        message = str(error).splitlines()[0]
        raise TransientError(f"{address}: {message}; the same command continues") from error
    shutil.rmtree(cache)


def _fetch_from_server(address: str, target: Path, sleep: Callable[[float], None]) -> None:
    """Fetch over http(s), or from what else fsspec knows; go on where it broke off."""
    part = target.with_name(f"{target.name}.part")
    note = part.with_name(f"{part.name}.etag")
    with open(part, "ab", buffering=0) as file, track_progress(0, "bytes", f"{target.name}") as bar:
        if not try_lock(file):
            raise UserError(f"{target}: another process is fetching it; wait for that one")
        farthest, fruitless = file.tell(), 0
        while True:
            try:
                for size, block in _read_rest(address, file, note):
                    with _name_full_disk(part):
                        while block:
                            block = block[file.write(block) :]
                    bar.total = size
                    bar.update(file.tell())
                break
            except TransientError as error:
                fruitless = 0 if file.tell() > farthest else fruitless + 1
                farthest = max(farthest, file.tell())
                if fruitless == ATTEMPTS:
                    raise TransientError(
                        f"{error}; gave up after {fruitless} attempts without a new byte. "
                        f"{file.tell():,} bytes are kept: the same command continues"
                    ) from error
                wait = min(2.0**fruitless, LONGEST_WAIT)
                print(f"{target.name}: {error}; again in {wait:.0f} s", file=sys.stderr, flush=True)
                sleep(wait)
        os.fsync(file.fileno())
        if target.suffix == ".gz":
            _check_gzip(part)
        os.replace(part, target)
    note.unlink(missing_ok=True)


def _read_rest(address: str, file: Any, note: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the size of the whole, 0 if the server does not tell it, and block after block of what
    is missing.

    `note` keeps what the server tells versions by (ETag, generation, date): of another version what
    has arrived is dropped. Without such a sign, or ranges, the file is fetched from its beginning.
    """
    is_web = address.startswith("http")
    check_host(address, "fetching")
    with storage.report_unreachable(address, "fetching"):
        more = {"client_kwargs": {"timeout": TIMEOUT}} if is_web else {}
        system, path = fsspec.core.url_to_fs(address, skip_instance_cache=True, **more)
        try:
            about = system.info(path)
        except FileNotFoundError as missing:  # fsspec hides the server's answer behind this
            raise missing.__cause__ or missing from None
    size = int(about.get("size") or 0)
    tag = str(next((about[name] for name in SIGNS if about.get(name)), ""))
    has_ranges = size and tag and about.get("partial", True)
    known = {"size": size} if is_web else {}  # else it is asked for again
    if not has_ranges or not note.exists() or note.read_text() != tag:
        if file.tell():
            file.truncate(0)
        note.write_text(tag)
    at = file.seek(0, os.SEEK_END)
    _check_room(note.parent, size - at)
    try:
        blocks = 8 * BLOCK if has_ranges else 0
        with system.open(path, "rb", block_size=blocks, **known) as remote:
            if at:
                remote.seek(at)
            yield size, b""
            while at != size and (block := remote.read(BLOCK)):
                at += len(block)
                yield size, block
    except (UserError, GeneratorExit):
        raise
    except Exception as error:  # each store's package has exceptions of its own
        if isinstance(error, ValueError):  # what came is no range of this file
            note.unlink(missing_ok=True)
        raise TransientError(f"{address}: {describe_error(error)}") from error
    if size and at != size:
        raise TransientError(f"{address}: {at:,} of {size:,} bytes arrived")


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise UserError(f"{folder}: {size:,} bytes to fetch, {free:,} free; make room")


@contextmanager
def _name_full_disk(path: Path) -> Iterator[None]:
    """Raise UserError for a disk that fails: another attempt would not help."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; what arrived is kept, the same command continues"
        ) from error


def _check_gzip(path: Path) -> None:
    """Remove a file that does not unpack to its end, and raise JobFailed."""
    try:
        with gzip.open(path, "rb") as file:
            while file.read(8 * BLOCK):
                pass
    except (OSError, EOFError, zlib.error) as error:
        path.unlink()
        raise JobFailed(
            f"{path}: not a whole gzip file ({error}); it was removed, fetch it again"
        ) from error
