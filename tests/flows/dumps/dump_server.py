"""Serve a dump on this machine, or lead elsewhere."""

import gzip
import random
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
        self.address = f"http://{host}:{self.http.server_port}/some/All_Beauty.json.gz"


def whole(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(DUMP)))
    handler.send_header("ETag", '"one"')
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(DUMP)


@contextmanager
def serving(made: Server) -> Iterator[Server]:
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()
