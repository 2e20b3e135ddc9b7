"""Fetches one file from any address so that it appears under its name only when it is whole.

What has arrived lies in NAME.part, with NAME.part.json beside it: the address and what identifies the remote file. The
next attempt, in this process or a later one, asks for the rest (Range), on the condition that the remote file is still
the same (If-Range), and begins again where the server does not do that. Servers break off, answer 503 and lie about
lengths; what each of these leads to is in `_receive`, `_retry` and `_check_whole`.
"""

import fcntl
import gzip
import hashlib
import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from beam_jobs.command import UserMistake
from beam_jobs.progress import Progress, progress

BLOCK = 1 << 20  # bytes
RETRIED_STATUS = (408, 425, 429, 500, 502, 503, 504)
LONGEST_WAIT = 60.0  # seconds between two attempts, also when the server asks for more
SILENCE = 60.0  # seconds without a byte after which the connection counts as broken


class TransferFailed(RuntimeError):
    """The file could not be had; what arrived is kept unless it was wrong."""


class _TryAgain(Exception):
    """This attempt ended early; `after` is how many seconds the server asks for."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


@dataclass
class Transfer:
    """One file on its way."""

    address: str
    target: Path
    sha256: str | None = None
    size: int | None = None  # bytes, where it is published
    attempts: int = 8  # in a row without one new byte
    sleep: Callable[[float], None] = time.sleep
    identity: dict[str, Any] = field(default_factory=dict)  # of the remote file: etag, modified, size
    resumed_from: int = 0

    @property
    def part(self) -> Path:
        return self.target.with_name(self.target.name + ".part")

    @property
    def note(self) -> Path:
        return self.target.with_name(self.target.name + ".part.json")

    def arrived(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def begin_again(self) -> None:
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        self.identity = {}

    def identify(self, identity: dict[str, Any]) -> None:
        """Remembers what the remote file is, for the next attempt."""
        self.identity = identity
        self.note.write_text(json.dumps({"address": self.address, **identity}))


def fetch(transfer: Transfer) -> dict[str, Any]:
    """Fetches the file unless it is there; returns path, bytes and how it went."""
    started = time.monotonic()
    if transfer.target.exists():
        _check_present(transfer)
        return _result(transfer, 0, started)
    transfer.target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(transfer):
        received = _fetch(transfer)
    return _result(transfer, received, started)


def _fetch(transfer: Transfer) -> int:
    """Bytes received."""
    _take_up(transfer)
    transfer.resumed_from = transfer.arrived()
    read = _read_http if urlsplit(transfer.address).scheme in ("http", "https") else _read_store
    with progress(transfer.size or 0, "bytes", f"fetching {transfer.target.name}") as shown:
        _retry(transfer, read, shown)
    _check_whole(transfer)
    received = transfer.arrived() - transfer.resumed_from
    os.replace(transfer.part, transfer.target)
    transfer.note.unlink(missing_ok=True)
    return received


@contextmanager
def _alone(transfer: Transfer) -> Iterator[None]:
    """One fetch of a file at a time, for two would write into one part; the lock dies with its process."""
    path = transfer.part.with_name(transfer.part.name + ".lock")
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = path.exists() and os.path.samestat(os.fstat(lock.fileno()), path.stat())
        except BlockingIOError:
            mine = False
        if not mine:
            raise UserMistake(f"{transfer.target}: another process is fetching it; wait for that one")
        try:
            yield
        finally:
            path.unlink()


def _result(transfer: Transfer, received: int, started: float) -> dict[str, Any]:
    return {
        "path": str(transfer.target),
        "address": transfer.address,
        "bytes": transfer.target.stat().st_size,
        "received": received,
        "resumed_from": transfer.resumed_from,
        "seconds": round(time.monotonic() - started, 3),
    }


def _take_up(transfer: Transfer) -> None:
    """Continues with what an earlier process left, if it was of this address."""
    try:
        note = json.loads(transfer.note.read_text())
    except (OSError, ValueError):
        note = {}
    if note.pop("address", None) == transfer.address:
        transfer.identity = note
    else:
        transfer.begin_again()


Read = Callable[[Transfer, Progress], None]


def _retry(transfer: Transfer, read: Read, shown: Progress) -> None:
    """Attempts until the file is whole; gives up after so many in a row that brought nothing new."""
    farthest, fruitless = transfer.arrived(), 0
    while True:
        try:
            return read(transfer, shown)
        except _TryAgain as ended:
            fruitless = 0 if transfer.arrived() > farthest else fruitless + 1
            farthest = max(farthest, transfer.arrived())
            if fruitless >= transfer.attempts:
                raise TransferFailed(
                    f"{transfer.address}: {ended}; gave up after {fruitless} attempts without a new byte. "
                    f"{farthest:,} bytes are kept: the same command continues"
                ) from ended
            wait = min(max(ended.after, 2.0 ** min(fruitless, 6) / 2), LONGEST_WAIT)
            shown.update(transfer.arrived(), note=f"{ended}; again in {wait:.0f} s")
            transfer.sleep(wait)


def _read_http(transfer: Transfer, shown: Progress) -> None:
    """One request: the rest of the file, or all of it."""
    at = transfer.arrived()
    try:
        with urllib.request.urlopen(_request(transfer, at), timeout=SILENCE) as response:
            _receive(transfer, response, at, shown)
    except urllib.error.HTTPError as error:
        _judge(transfer, error, at)
    except (OSError, http.client.HTTPException) as error:
        if getattr(error, "filename", None):  # a file of this machine, not the connection
            raise
        raise _TryAgain(f"the connection failed ({error})") from error


def _request(transfer: Transfer, at: int) -> urllib.request.Request:
    request = urllib.request.Request(transfer.address, headers={"User-Agent": "amazon-electra"})
    request.add_header("Accept-Encoding", "identity")
    validator = transfer.identity.get("etag") or transfer.identity.get("modified")
    if at:
        request.add_header("Range", f"bytes={at}-")
        if validator and not validator.startswith("W/"):  # a weak one may not be used so (RFC 9110, 13.1.5)
            request.add_header("If-Range", validator)
    return request


def _judge(transfer: Transfer, error: urllib.error.HTTPError, at: int) -> None:
    """An answer that is not the file: done, worth another attempt, or the user's mistake."""
    if error.code == 416 and at:
        if at == transfer.identity.get("size"):
            return
        transfer.begin_again()
        raise _TryAgain("the server has no bytes from there on")
    if error.code in RETRIED_STATUS:
        asked = error.headers.get("Retry-After", "")
        raise _TryAgain(f"the server answered {error.code}", float(asked) if asked.isdigit() else 0.0)
    raise UserMistake(f"{transfer.address}: the server answered {error.code} {error.reason}; check the address")


def _receive(transfer: Transfer, response: Any, at: int, shown: Progress) -> None:
    """Writes what the server sends; a break before the promised length means another attempt."""
    first, size = _extent(response, at)
    identity = {"etag": response.headers.get("ETag"), "modified": response.headers.get("Last-Modified"), "size": size}
    if first and _differs(transfer.identity, identity):
        transfer.begin_again()
        raise _TryAgain("the file changed on the server")
    _check_size(transfer, size)
    transfer.identify(identity)
    _check_room(transfer, size, first)
    blocks = iter(lambda: response.read1(BLOCK), b"")
    _write(transfer, blocks, first, size, shown)
    _check_length(transfer, size, "the server")


def _extent(response: Any, at: int) -> tuple[int, int | None]:
    """Where what follows begins, and the size of the whole file (None: the server does not say)."""
    if response.status == 206:
        unit, _, extent = response.headers.get("Content-Range", "").partition(" ")
        first, _, size = extent.partition("/")
        if unit == "bytes" and first.split("-")[0] == str(at):
            return at, int(size) if size.isdigit() else None
        raise _TryAgain(f"the server sent another part than asked for ({unit} {extent})")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _differs(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return any(before.get(key) and now.get(key) and before[key] != now[key] for key in ("etag", "modified", "size"))


def _check_size(transfer: Transfer, size: int | None) -> None:
    if transfer.size is not None and size is not None and size != transfer.size:
        raise TransferFailed(f"{transfer.address}: the server says {size:,} bytes, published are {transfer.size:,}")


def _check_length(transfer: Transfer, size: int | None, who: str) -> None:
    """What arrived is as long as was announced; `size` None: nothing was."""
    arrived = transfer.arrived()
    if size is not None and arrived < size:
        raise _TryAgain(f"{who} broke off after {arrived:,} of {size:,} bytes")
    if size is not None and arrived > size:
        transfer.begin_again()
        raise _TryAgain(f"{who} sent {arrived:,} bytes and had announced {size:,}")


def _check_room(transfer: Transfer, size: int | None, first: int) -> None:
    free = shutil.disk_usage(transfer.target.parent).free
    if size is not None and size - first > free:
        raise UserMistake(f"{transfer.target.parent}: {size - first:,} bytes to fetch, {free:,} free; make room")


def _write(transfer: Transfer, blocks: Iterator[bytes], first: int, size: int | None, shown: Progress) -> None:
    done = first
    with _on_disk(transfer.part):
        part = FileIO(transfer.part, "a" if first else "w")
    with part:
        for block in blocks:
            with _on_disk(transfer.part):
                _append(part, block)
            done += len(block)
            shown.total = max(size or 0, done)
            shown.update(done)
        with _on_disk(transfer.part):
            os.fsync(part.fileno())


def _append(part: FileIO, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[part.write(left) :]


@contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    """A disk that fails is not a connection that fails: another attempt would not help."""
    try:
        yield
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}; what arrived is kept, the same command continues") from error


def _read_store(transfer: Transfer, shown: Progress) -> None:
    """gs://, s3:// and whatever else fsspec knows; the rest of the file from where we are."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(transfer.address)
        size = int(system.size(path) or 0)
        identity = {"etag": str(system.ukey(path)), "size": size}
    except (ImportError, ValueError, FileNotFoundError, PermissionError) as error:
        raise UserMistake(f"{transfer.address}: {error}") from error
    except OSError as error:
        raise _TryAgain(f"the store failed ({error})") from error
    if _differs(transfer.identity, identity):
        transfer.begin_again()
    at = transfer.arrived()
    _check_size(transfer, size)
    transfer.identify(identity)
    _check_room(transfer, size, at)
    try:
        with system.open(path, "rb", block_size=8 * BLOCK) as file:
            file.seek(at)
            _write(transfer, iter(lambda: file.read(BLOCK), b""), at, size, shown)
    except OSError as error:
        raise _TryAgain(f"the store failed ({error})") from error
    _check_length(transfer, size, "the store")


def _check_whole(transfer: Transfer) -> None:
    """Size, checksum and, for .gz, that it unpacks to its end: a server that says too short a length is found here."""
    arrived = transfer.arrived()
    if transfer.size is not None and arrived != transfer.size:
        if arrived > transfer.size:
            transfer.begin_again()
        raise TransferFailed(f"{transfer.part}: {arrived:,} bytes, published are {transfer.size:,}")
    try:
        _check_checksum(transfer.part, transfer.sha256)
        if transfer.target.suffix == ".gz":
            _check_gzip(transfer.part)
    except TransferFailed:
        transfer.begin_again()
        raise


def _check_present(transfer: Transfer) -> None:
    """A file that is there already is the one asked for, as far as that was said."""
    found = transfer.target.stat().st_size
    if transfer.size is not None and found != transfer.size:
        raise TransferFailed(
            f"{transfer.target}: {found:,} bytes, published are {transfer.size:,}; remove it, or fetch elsewhere"
        )
    _check_checksum(transfer.target, transfer.sha256)


def _check_checksum(path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256.lower():
        raise TransferFailed(f"{path}: SHA-256 is {found}, expected {sha256}; the file was not accepted")


def _check_gzip(path: Path) -> None:
    try:
        with gzip.open(path, "rb") as file:
            while file.read(8 * BLOCK):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise TransferFailed(f"{path}: not a whole gzip file ({error}); it was removed, fetch it again") from error


def name_of(address: str) -> str:
    """The file name at the end of an address."""
    return unquote(urlsplit(address).path.rstrip("/").rpartition("/")[2])
