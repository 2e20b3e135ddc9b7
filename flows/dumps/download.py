"""Fetch one file from any address so that it appears under its name only when it is whole.

What has arrived lies in NAME.part, with NAME.part.json beside it: the address and what identifies
the remote file. The next attempt, in this process or a later one, asks for the rest (Range), on the
condition that the remote file is still the same (If-Range), and begins again where the server does
not do that. Servers break off, answer 503 and lie about lengths; `_receive_response`,
`_retry_reads` and `_check_whole` say what each of these leads to.

Why no library: pooch 1.9 and fsspec's `get` begin each attempt at the first byte; huggingface_hub's
`http_get` continues, but does not notice that the remote file changed meanwhile (no If-Range), and
none of these dumps lies on its hub.
"""

import http.client
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from beam_jobs.job.errors import TransientError, UserError
from beam_jobs.job.hosts import CheckedRedirects, check_host
from beam_jobs.job.locks import try_lock
from beam_jobs.job.progress import Progress, track_progress
from flows.dumps.integrity import TransferFailed, check_checksum, check_gzip

BLOCK = 1 << 20  # bytes
RETRIED_STATUS = (408, 425, 429, 500, 502, 503, 504)
LONGEST_WAIT = 60.0  # seconds between two attempts, also when the server asks for more
SILENCE = 60.0  # seconds without a byte after which the connection counts as broken


class _TryAgain(Exception):
    """This attempt ended early; `after` is how many seconds the server asks for."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


@dataclass
class Transfer:
    """One file on its way from `address` to `target`."""

    address: str
    target: Path
    sha256: str | None = None
    size: int | None = None  # bytes, where it is published
    attempts: int = 8  # in a row without one new byte
    sleep: Callable[[float], None] = time.sleep
    identity: dict[str, Any] = field(
        default_factory=dict
    )  # of the remote file: etag, modified, size
    resumed_from: int = 0

    @property
    def part(self) -> Path:
        return self.target.with_name(self.target.name + ".part")

    @property
    def note(self) -> Path:
        return self.target.with_name(self.target.name + ".part.json")

    def count_arrived_bytes(self) -> int:
        """Return how many bytes have arrived."""
        return self.part.stat().st_size if self.part.exists() else 0

    def begin_again(self) -> None:
        """Remove what has arrived: it is of another file, or wrong."""
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        self.identity = {}

    def identify(self, identity: dict[str, Any]) -> None:
        """Remember what the remote file is, for the next attempt."""
        self.identity = identity
        self.note.write_text(json.dumps({"address": self.address, **identity}))


def fetch_file(transfer: Transfer) -> dict[str, Any]:
    """Fetch the file unless it is there; return path, bytes and how it went."""
    started = time.monotonic()
    if transfer.target.exists():
        _check_present(transfer)
        return _summarize_transfer(transfer, 0, started)
    transfer.target.parent.mkdir(parents=True, exist_ok=True)
    with _hold_part(transfer):
        received = _download(transfer)
    return _summarize_transfer(transfer, received, started)


def _download(transfer: Transfer) -> int:
    """Fetch what is missing, check the whole, and return the bytes received."""
    _resume_transfer(transfer)
    transfer.resumed_from = transfer.count_arrived_bytes()
    read = (
        _read_http if urlsplit(transfer.address).scheme in ("http", "https") else _read_object_store
    )
    with track_progress(transfer.size or 0, "bytes", f"fetching {transfer.target.name}") as shown:
        _retry_reads(transfer, read, shown)
    _check_whole(transfer)
    received = transfer.count_arrived_bytes() - transfer.resumed_from
    os.replace(transfer.part, transfer.target)
    transfer.note.unlink(missing_ok=True)
    return received


def _is_still_at(path: Path, file: IO) -> bool:
    """Return whether an open file is the one that lies at `path` now."""
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


@contextmanager
def _hold_part(transfer: Transfer) -> Iterator[None]:
    """Let one process at a time fetch a file, for two would write into one part.

    The lock dies with its process.
    """
    path = transfer.part.with_name(transfer.part.name + ".lock")
    with open(path, "w") as lock:
        if not try_lock(lock) or not _is_still_at(path, lock):
            raise UserError(f"{transfer.target}: another process is fetching it; wait for that one")
        try:
            yield
        finally:
            path.unlink()


def _summarize_transfer(transfer: Transfer, received: int, started: float) -> dict[str, Any]:
    return {
        "path": str(transfer.target),
        "address": transfer.address,
        "bytes": transfer.target.stat().st_size,
        "received": received,
        "resumed_from": transfer.resumed_from,
        "seconds": round(time.monotonic() - started, 3),
    }


def _resume_transfer(transfer: Transfer) -> None:
    """Continue with what an earlier process left, if it was of this address."""
    try:
        note = json.loads(transfer.note.read_text())
    except (OSError, ValueError):
        note = {}
    if note.pop("address", None) == transfer.address:
        transfer.identity = note
    else:
        transfer.begin_again()


Read = Callable[[Transfer, Progress], None]


def _retry_reads(transfer: Transfer, read: Read, shown: Progress) -> None:
    """Read until the file is whole; give up after many attempts in a row without a new byte."""
    farthest, fruitless = transfer.count_arrived_bytes(), 0
    while True:
        try:
            return read(transfer, shown)
        except _TryAgain as ended:
            fruitless = 0 if transfer.count_arrived_bytes() > farthest else fruitless + 1
            farthest = max(farthest, transfer.count_arrived_bytes())
            if fruitless >= transfer.attempts:
                raise TransferFailed(
                    f"{transfer.address}: {ended}; gave up after {fruitless} attempts without a "
                    f"new byte. {farthest:,} bytes are kept: the same command continues"
                ) from ended
            wait = min(max(ended.after, 2.0 ** min(fruitless, 6) / 2), LONGEST_WAIT)
            attempt = f"attempt {fruitless + 1} of {transfer.attempts} in {wait:.0f} s"
            print(f"{transfer.target.name}: {ended}; {attempt}", file=sys.stderr, flush=True)
            shown.update(transfer.count_arrived_bytes())
            transfer.sleep(wait)


def _read_http(transfer: Transfer, shown: Progress) -> None:
    """Request the rest of the file, or all of it."""
    at = transfer.count_arrived_bytes()
    web = urllib.request.build_opener(CheckedRedirects)
    try:
        check_host(transfer.address, "fetching")
        with web.open(_build_request(transfer, at), timeout=SILENCE) as response:
            _receive_response(transfer, response, at, shown)
    except TransientError as error:
        raise _TryAgain(str(error)) from error
    except urllib.error.HTTPError as error:
        _handle_http_error(transfer, error, at)
    except (OSError, http.client.HTTPException) as error:
        if getattr(error, "filename", None):  # a file of this machine, not the connection
            raise
        raise _TryAgain(f"the connection failed ({error})") from error


def _build_request(transfer: Transfer, at: int) -> urllib.request.Request:
    request = urllib.request.Request(transfer.address, headers={"User-Agent": "amazon-electra"})
    request.add_header("Accept-Encoding", "identity")
    validator = transfer.identity.get("etag") or transfer.identity.get("modified")
    if at:
        request.add_header("Range", f"bytes={at}-")
        if validator and not validator.startswith(
            "W/"
        ):  # a weak one may not be used so (RFC 9110, 13.1.5)
            request.add_header("If-Range", validator)
    return request


def _handle_http_error(transfer: Transfer, error: urllib.error.HTTPError, at: int) -> None:
    """Return if the file is whole; else raise _TryAgain, or UserError for the user's mistake."""
    if error.code == 416 and at:
        if at == transfer.identity.get("size"):
            return
        transfer.begin_again()
        raise _TryAgain("the server has no bytes from there on")
    if error.code in RETRIED_STATUS:
        asked = error.headers.get("Retry-After", "")
        raise _TryAgain(
            f"the server answered {error.code}", float(asked) if asked.isdigit() else 0.0
        )
    raise UserError(
        f"{transfer.address}: the server answered {error.code} {error.reason}; check the address"
    )


def _receive_response(transfer: Transfer, response: Any, at: int, shown: Progress) -> None:
    """Write what the server sends; a break before the promised length means another attempt."""
    first, size = _parse_extent(response, at)
    identity = {
        "etag": response.headers.get("ETag"),
        "modified": response.headers.get("Last-Modified"),
        "size": size,
    }
    if first and _is_other_file(transfer.identity, identity):
        transfer.begin_again()
        raise _TryAgain("the file changed on the server")
    _check_size(transfer, size)
    transfer.identify(identity)
    _check_room(transfer, size, first)
    blocks = iter(lambda: response.read1(BLOCK), b"")
    _write_blocks(transfer, blocks, first, size, shown)
    _check_length(transfer, size, "the server")


def _parse_extent(response: Any, at: int) -> tuple[int, int | None]:
    """Return where the body begins and the size of the whole file, None if the server is silent."""
    if response.status == 206:
        unit, _, extent = response.headers.get("Content-Range", "").partition(" ")
        first, _, size = extent.partition("/")
        if unit == "bytes" and first.split("-")[0] == str(at):
            return at, int(size) if size.isdigit() else None
        raise _TryAgain(f"the server sent another part than asked for ({unit} {extent})")
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _is_other_file(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether the remote file has changed."""
    return any(
        before.get(key) and now.get(key) and before[key] != now[key]
        for key in ("etag", "modified", "size")
    )


def _check_size(transfer: Transfer, size: int | None) -> None:
    if transfer.size is not None and size is not None and size != transfer.size:
        raise TransferFailed(
            f"{transfer.address}: the server says {size:,} bytes, published are {transfer.size:,}"
        )


def _check_length(transfer: Transfer, size: int | None, who: str) -> None:
    """Raise _TryAgain unless as many bytes arrived as were announced (None: nothing was)."""
    arrived = transfer.count_arrived_bytes()
    if size is not None and arrived < size:
        raise _TryAgain(f"{who} broke off after {arrived:,} of {size:,} bytes")
    if size is not None and arrived > size:
        transfer.begin_again()
        raise _TryAgain(f"{who} sent {arrived:,} bytes and had announced {size:,}")


def _check_room(transfer: Transfer, size: int | None, first: int) -> None:
    free = shutil.disk_usage(transfer.target.parent).free
    if size is not None and size - first > free:
        raise UserError(
            f"{transfer.target.parent}: {size - first:,} bytes to fetch, {free:,} free; make room"
        )


def _write_blocks(
    transfer: Transfer, blocks: Iterator[bytes], first: int, size: int | None, shown: Progress
) -> None:
    done = first
    with _translate_disk_errors(transfer.part):
        part = FileIO(transfer.part, "a" if first else "w")
    with part:
        for block in blocks:
            with _translate_disk_errors(transfer.part):
                _append_block(part, block)
            done += len(block)
            shown.total = max(size or 0, done)
            shown.update(done)
        with _translate_disk_errors(transfer.part):
            os.fsync(part.fileno())


def _append_block(part: FileIO, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[part.write(left) :]


@contextmanager
def _translate_disk_errors(path: Path) -> Iterator[None]:
    """Raise UserError for a disk that fails: another attempt would not help."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; what arrived is kept, the same command continues"
        ) from error


def _read_object_store(transfer: Transfer, shown: Progress) -> None:
    """Read the rest of the file from gs://, s3:// and whatever else fsspec knows."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(transfer.address)
        size = int(system.size(path) or 0)
        identity = {"etag": str(system.ukey(path)), "size": size}
    except (ImportError, ValueError, FileNotFoundError, PermissionError) as error:
        raise UserError(f"{transfer.address}: {error}") from error
    except OSError as error:
        raise _TryAgain(f"the store failed ({error})") from error
    if _is_other_file(transfer.identity, identity):
        transfer.begin_again()
    at = transfer.count_arrived_bytes()
    _check_size(transfer, size)
    transfer.identify(identity)
    _check_room(transfer, size, at)
    try:
        with system.open(path, "rb", block_size=8 * BLOCK) as file:
            file.seek(at)
            _write_blocks(transfer, iter(lambda: file.read(BLOCK), b""), at, size, shown)
    except OSError as error:
        raise _TryAgain(f"the store failed ({error})") from error
    _check_length(transfer, size, "the store")


def _check_whole(transfer: Transfer) -> None:
    """Check size, checksum and, for .gz, that it unpacks to its end.

    A server that announces too short a length is found out here.
    """
    arrived = transfer.count_arrived_bytes()
    if transfer.size is not None and arrived != transfer.size:
        if arrived > transfer.size:
            transfer.begin_again()
        raise TransferFailed(f"{transfer.part}: {arrived:,} bytes, published are {transfer.size:,}")
    try:
        check_checksum(transfer.part, transfer.sha256)
        if transfer.target.suffix == ".gz":
            check_gzip(transfer.part)
    except TransferFailed:
        transfer.begin_again()
        raise


def _check_present(transfer: Transfer) -> None:
    """Check that a file that is there already is the one asked for, as far as that was said."""
    found = transfer.target.stat().st_size
    if transfer.size is not None and found != transfer.size:
        raise TransferFailed(
            f"{transfer.target}: {found:,} bytes, published are {transfer.size:,}; remove it, "
            "or fetch elsewhere"
        )
    check_checksum(transfer.target, transfer.sha256)


def parse_file_name(address: str) -> str:
    """Return the file name at the end of an address, which leads into no other folder."""
    name = unquote(urlsplit(address).path).rstrip("/").rpartition("/")[2]
    if name in ("", ".", "..") or any(character in name for character in "\\\0"):
        raise UserError(f"{address}: the address must end in a file's name")
    return name
