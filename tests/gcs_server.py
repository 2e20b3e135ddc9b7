"""A small Google Cloud Storage for tests: objects in memory, behind the JSON API as gcsfs uses it.

Buckets need not be made. Uploads are whole (multipart), as gcsfs sends what is smaller than 5 MB.
"""

import base64
import hashlib
import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

OBJECT = re.compile(r"^/(?:download/)?storage/v1/b/([^/]+)/o/(.+)$")
LISTING = re.compile(r"^/storage/v1/b/([^/]+)/o/?$")
UPLOAD = re.compile(r"^/upload/storage/v1/b/([^/]+)/o/?$")


class GcsServer:
    """The objects of all buckets, by BUCKET/NAME, and the address of who serves them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.refusal: tuple[int, str] | None = None
        """The status and message of the answer to the next `refusals` requests."""
        self.refusals = 0
        self._lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """Return what gcsfs finds in its environment."""
        return {"STORAGE_EMULATOR_HOST": self.url, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}

    def refuse(self, status: int, message: str, times: int = 1_000_000) -> None:
        """Answer the next requests by this error alone."""
        self.refusal, self.refusals = (status, message), times

    def find_refusal(self) -> tuple[int, str] | None:
        """Return the error that answers a request, if any; each counts."""
        with self._lock:
            self.refusals -= 1
            return self.refusal if self.refusals >= 0 else None

    def store(self, name: str, content: bytes, only_new: bool) -> bool:
        """Keep an object; return False if only a new one was wanted and there is one."""
        with self._lock:
            if only_new and name in self.objects:
                return False
            self.objects[name] = content
            return True

    def list_names(self, folder: str) -> list[str]:
        """Return the names below BUCKET/FOLDER, sorted."""
        return sorted(
            name.removeprefix(f"{folder}/")
            for name in self.objects
            if name.startswith(f"{folder}/")
        )


@contextmanager
def serve_gcs() -> Iterator[GcsServer]:
    """Serve empty buckets on this machine while the block lasts."""
    web = QuietServer(("127.0.0.1", 0), Handler)
    web.gcs = gcs = GcsServer(f"http://127.0.0.1:{web.server_port}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield gcs
    finally:
        web.shutdown()
        web.server_close()
        thread.join()


class QuietServer(ThreadingHTTPServer):
    """Says nothing of clients that hang up."""

    def handle_error(self, request: Any, client_address: Any) -> None: ...


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    @property
    def gcs(self) -> GcsServer:
        return self.server.gcs  # type: ignore[attr-defined, no-any-return]

    @property
    def objects(self) -> dict[str, bytes]:
        return self.gcs.objects

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        if self._refuse():
            return
        place = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(place.query).items()}
        if match := LISTING.match(place.path):
            return self._answer_json(self._list(match[1], query))
        name = self._find_object(place.path)
        if name is None:
            return self._answer_error(404, "Not Found")
        if query.get("alt") != "media":
            return self._answer_json(describe_object(name, self.objects[name]))
        content = self.objects[name]
        if wanted := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(wanted[1]), int(wanted[2] or len(content) - 1)
            if first >= len(content):
                return self._answer(416, b"")
            return self._answer(206, content[first : last + 1])
        self._answer(200, content)

    def do_POST(self) -> None:
        place = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self._refuse():
            return
        match = UPLOAD.match(place.path)
        if not match:
            return self._answer(501, b"only uploads are served")
        query = {name: values[0] for name, values in parse_qs(place.query).items()}
        boundary = re.search(r'boundary="?([^";]+)', self.headers["Content-Type"])
        assert boundary
        _, about, content, _ = body.split(b"--" + boundary[1].encode(), 3)
        name = f"{match[1]}/{json.loads(about.split(_blank(about), 1)[1])['name']}"
        content = content.split(_blank(content), 1)[1].removesuffix(b"\n").removesuffix(b"\r")
        self._keep(name, content, query)

    def do_DELETE(self) -> None:
        if self._refuse():
            return
        name = self._find_object(urlsplit(self.path).path)
        if name is None:
            return self._answer(404, b"{}")
        del self.objects[name]
        self._answer(204, b"")

    def _keep(self, name: str, content: bytes, query: dict[str, str]) -> None:
        if not self.gcs.store(name, content, query.get("ifGenerationMatch") == "0"):
            return self._answer_error(412, "At least one of the pre-conditions did not hold.")
        self._answer_json(describe_object(name, content))

    def _refuse(self) -> bool:
        """Answer by an error where the server is to; say whether."""
        if error := self.gcs.find_refusal():
            self._answer_error(*error)
        return bool(error)

    def _find_object(self, path: str) -> str | None:
        match = OBJECT.match(path)
        name = f"{match[1]}/{unquote(match[2])}" if match else ""
        return name if name in self.objects else None

    def _list(self, bucket: str, query: dict[str, str]) -> dict[str, Any]:
        """Return the objects and folders below a prefix; a delimiter hides what is deeper."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        items, folders = [], set()
        for name, content in sorted(self.objects.items()):
            key = name.removeprefix(f"{bucket}/")
            if not name.startswith(f"{bucket}/") or not key.startswith(prefix):
                continue
            deeper = key.removeprefix(prefix).partition(delimiter) if delimiter else ("", "", "")
            if deeper[1]:
                folders.add(prefix + deeper[0] + delimiter)
            else:
                items.append(describe_object(name, content))
        return {"kind": "storage#objects", "items": items, "prefixes": sorted(folders)}

    def _answer_error(self, status: int, message: str) -> None:
        error = {"error": {"code": status, "message": message}}
        self._answer(status, json.dumps(error).encode())

    def _answer_json(self, content: Any) -> None:
        self._answer(200, json.dumps(content).encode())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(content)


def _blank(part: bytes) -> bytes:
    """Return the line that ends the headers of a part."""
    return b"\r\n\r\n" if b"\r\n\r\n" in part else b"\n\n"


def describe_object(name: str, content: bytes) -> dict[str, Any]:
    bucket, _, key = name.partition("/")
    return {
        "kind": "storage#object",
        "bucket": bucket,
        "name": key,
        "size": str(len(content)),
        "generation": str(1 + zlib.crc32(content)),
        "md5Hash": base64.b64encode(hashlib.md5(content).digest()).decode(),
        "timeCreated": "2026-01-01T00:00:00.000Z",
        "updated": "2026-01-01T00:00:00.000Z",
    }
