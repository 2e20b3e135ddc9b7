"""What Flink's REST API answers of a cluster, for checks that need no cluster."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Flink:
    """Its address, its jobs, and what it was asked."""

    address: str
    jobs: list[dict[str, str]]
    asked: list[str] = field(default_factory=list)
    stacktrace: str = ""  # of the newest failure of every job

    def list_cancelled(self) -> list[str]:
        return [word.split("/")[2].partition("?")[0] for word in self.asked if "PATCH" in word]


@contextmanager
def serve_flink(jobs: Sequence[str] = ()) -> Iterator[Flink]:
    """Answer while the block lasts; the ids of jobs are 1, 2, …, in the order of their names."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            flink.asked.append(f"{self.command} {self.path}")
            entries = [{"stacktrace": flink.stacktrace}] if flink.stacktrace else []
            failures = {"exceptionHistory": {"entries": entries}}
            body = json.dumps({"jobs": flink.jobs, **failures}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PATCH = do_GET

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        given = [{"jid": str(i), "name": n, "state": "RUNNING"} for i, n in enumerate(jobs, 1)]
        flink = Flink(f"http://localhost:{server.server_port}", given)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield flink
        server.shutdown()
