"""Serve a dump on this machine, break off, refuse, ignore Range and lie about lengths."""

import gzip
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TEXT = random.Random(0).randbytes(300_000)
DUMP = gzip.compress(TEXT, mtime=0)


class Server:
    """Answers each request with the next of `answers`, the last one again and again; keeps what it
    was asked.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.answers: list[Callable[[Any], None]] = [whole]
        self.asked: list[dict[str, str]] = []
        self.etag = '"one"'
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(dict(self.headers))
                answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                answer(self)
                self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer((host, 0), Handler)
        self.http.etag = lambda: outer.etag  # type: ignore[attr-defined]
        self.address = f"http://{host}:{self.http.server_port}/some/All_Beauty.json.gz"


def send(
    handler: Any,
    body: bytes,
    status: int = 200,
    promised: int | None = None,
    ranged: bool = True,
    **headers: str,
) -> None:
    """Serves `body` as asked; `promised` replaces the honest length of what follows."""
    start = 0
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
    condition = handler.headers.get("If-Range")
    if asked and ranged and condition in (None, handler.server.etag()):
        start, status = int(asked[1]), 206
        if start >= len(body):
            handler.send_response(416)
            handler.end_headers()
            return
        headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) - start if promised is None else promised))
    handler.send_header("ETag", handler.server.etag())
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command == "HEAD":
        return
    handler.wfile.write(
        body[start:]
        if promised is None or promised >= len(body) - start
        else body[start:][:promised]
    )


def whole(handler: Any) -> None:
    send(handler, DUMP)


def redirecting(address: str) -> Callable[[Any], None]:
    return refusing(302, Location=address)


def breaking_after(received: int) -> Callable[[Any], None]:
    """Promises the rest of the file and sends so many bytes of it."""

    def answer(handler: Any) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        handler.send_response(206 if asked else 200)
        if asked:
            handler.send_header("Content-Range", f"bytes {start}-{len(DUMP) - 1}/{len(DUMP)}")
        handler.send_header("Content-Length", str(len(DUMP) - start))
        handler.send_header("ETag", handler.server.etag())
        handler.end_headers()
        handler.wfile.write(DUMP[start : start + received])

    return answer


def refusing(status: int, **headers: str) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def ignoring_range(handler: Any) -> None:
    send(handler, DUMP, ranged=False)


@contextmanager
def serving(made: Server) -> Iterator[Server]:
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()
