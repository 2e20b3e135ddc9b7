"""Public review dumps by name (public_dumps.yaml), and how one is fetched.

A file appears under its name when it is whole. What has arrived lies in NAME.part; the next
attempt, in this process or a later one, asks for the rest. The hub's files are fetched by
huggingface_hub, which does the same in a cache of its own beside them.
"""

import gzip
import http.client
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from amazon_electra.beam_jobs.core.errors import JobFailed, TransientError, UserError
from amazon_electra.beam_jobs.core.files import hash_file
from amazon_electra.beam_jobs.core.hosts import check_host, open_checked_url
from amazon_electra.beam_jobs.core.locks import try_lock
from amazon_electra.beam_jobs.core.progress import Progress
from amazon_electra.beam_jobs.core.terminal import print

HUB = "hf://datasets/"
BLOCK = 1 << 20  # bytes
ATTEMPTS = 8  # in a row without one new byte
MAX_WAIT = 60.0  # seconds between two attempts
SILENCE = 60.0  # seconds without a byte after which the connection counts as broken
RETRIED_STATUS = (408, 416, 425, 429, 500, 502, 503, 504)


def read_releases() -> dict[str, dict[str, Any]]:
    """Return release → about, address, reviews: category → how many, None where it is not known."""
    releases = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    for release in releases.values():
        if other := release.pop("categories_of", ""):
            release["reviews"] = dict.fromkeys(releases[other]["reviews"])
    return dict(releases)


def find_address(name: str) -> str:
    """Return the address of a named dump (`2023/All_Beauty`); a web address is its own."""
    if urlsplit(name).scheme:
        if not name.startswith(("http://", "https://")):
            raise UserError(
                f"{name}: not a name of `amazon-electra dumps list` and no http(s):// address; "
                "give an address in a bucket to `dump.paths`, which reads it there"
            )
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
    """Fetch over http(s); go on where it broke off."""
    part = target.with_name(f"{target.name}.part")
    note = part.with_name(f"{part.name}.etag")
    with open(part, "ab", buffering=0) as file, Progress(0, "bytes", f"{target.name}") as bar:
        if not try_lock(file):
            raise UserError(f"{target}: another process is fetching it; wait for that one")
        farthest, fruitless = file.tell(), 0
        while True:
            try:
                size = None
                for size, block in _read_http(address, file, note):
                    try:
                        while block:
                            block = block[file.write(block) :]
                    except OSError as error:  # another attempt would not help
                        raise UserError(
                            f"{part}: {error.strerror}; what arrived is kept, the same command "
                            "continues"
                        ) from error
                    bar.total = size or 0
                    bar.update(file.tell())
                if size is not None and file.tell() != size:
                    raise TransientError(f"{file.tell():,} of {size:,} bytes arrived")
                break
            except (TransientError, OSError, http.client.HTTPException) as error:
                fruitless = 0 if file.tell() > farthest else fruitless + 1
                farthest = max(farthest, file.tell())
                if fruitless == ATTEMPTS:
                    raise TransientError(
                        f"{address}: {error}; gave up after {fruitless} attempts without a new "
                        f"byte. {file.tell():,} bytes are kept: the same command continues"
                    ) from error
                wait = min(2.0**fruitless, MAX_WAIT)
                print(f"{target.name}: {error}; again in {wait:.0f} s", file=sys.stderr, flush=True)
                sleep(wait)
        os.fsync(file.fileno())
        if target.suffix == ".gz":
            _check_gzip(part)
        os.replace(part, target)
    note.unlink(missing_ok=True)


def _read_http(address: str, file: Any, note: Path) -> Iterator[tuple[int | None, bytes]]:
    """Yield the size of the whole, if the server sends it, and block after block of what is
    missing.

    `note` keeps the remote file's ETag or date: on the condition that it is still the same, the
    server sends the rest alone (If-Range); else all of it, and what has arrived is dropped.
    """
    check_host(address, f"fetching {address}")
    at, known = file.tell(), note.read_text(encoding="utf-8") if note.exists() else ""
    request = urllib.request.Request(address, headers={"User-Agent": "amazon-electra"})
    request.add_header("Accept-Encoding", "identity")
    if at and known:
        request.add_header("Range", f"bytes={at}-")
        request.add_header("If-Range", known)
    try:
        response = open_checked_url(request, SILENCE)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            _begin_again(file, note)
        if error.code in RETRIED_STATUS:
            raise TransientError(f"the server answered {error.code}") from error
        raise UserError(
            f"{address}: the server answered {error.code} {error.reason}; check the address"
        ) from error
    with response:
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        length = response.headers.get("Content-Length")
        if response.status != 206:
            _begin_again(file, note)
            condition = "" if tag.startswith("W/") else tag  # a weak one is none
            note.write_text(condition, encoding="utf-8")
        elif (
            tag not in ("", known)
            or response.headers["Content-Range"].split("-")[0] != f"bytes {at}"
        ):
            _begin_again(file, note)
            raise TransientError("the file changed on the server")
        size = None if length is None else file.tell() + int(length)
        _check_room(note.parent, int(length or 0))
        yield size, b""
        while block := response.read1(BLOCK):
            yield size, block


def _begin_again(file: Any, note: Path) -> None:
    """Drop what has arrived: it is of another file."""
    if file.tell():
        file.truncate(0)
        file.seek(0)
    note.unlink(missing_ok=True)


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise UserError(f"{folder}: {size:,} bytes to fetch, {free:,} free; make room")


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
