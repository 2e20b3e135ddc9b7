"""What Flink's REST API answers of a cluster, for checks that need no cluster."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Flink:
    """Its address, its jobs, and what it was asked."""

    def __init__(self, address: str, jobs: Sequence[str]):
        self.address = address
        self.asked: list[str] = []
        self.jobs = [
            {"jid": str(i), "name": name, "start-time": i, "state": "RUNNING"}
            for i, name in enumerate(jobs, start=1)
        ]
        self.stacktrace = ""
        """Of the newest failure of every job."""

    def list_cancelled(self) -> list[str]:
        return [word.split("/")[2].partition("?")[0] for word in self.asked if "PATCH" in word]


@contextmanager
def serve_flink(jobs: Sequence[str] = ()) -> Iterator[Flink]:
    """Answer while the block lasts; the ids of jobs are 1, 2, …, in the order of their names."""

    def answer(path: str) -> dict[str, Any]:
        if path.endswith("/exceptions"):
            entries = [{"stacktrace": flink.stacktrace}] if flink.stacktrace else []
            return {"exceptionHistory": {"entries": entries}}
        return {"jobs": flink.jobs} if path == "/jobs/overview" else {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            flink.asked.append(f"{self.command} {self.path}")
            body = json.dumps(answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PATCH = do_GET

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        flink = Flink(f"http://localhost:{server.server_port}", jobs)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield flink
        server.shutdown()
