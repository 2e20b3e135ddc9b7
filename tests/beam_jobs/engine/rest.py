"""What Flink's REST API answers of a cluster, for checks that need no cluster."""

import json
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Flink:
    """Its address, and what it was asked."""

    def __init__(self, address: str):
        self.address = address
        self.asked: list[str] = []


@contextmanager
def serve_flink(
    slots: int,
    jobs: Sequence[str] = (),
    version: str = "1.19.3",
    jars: Sequence[str] = (),
    over: Collection[str] = (),
) -> Iterator[Flink]:
    """Answer while the block lasts; the ids of jobs are 1, 2, …, in the order of their names and
    starts, those in `over` have finished, and `jars` are the JobManager's.
    """
    listed = [
        {
            "jid": str(i),
            "name": name,
            "start-time": i,
            "state": "FINISHED" if str(i) in over else "RUNNING",
        }
        for i, name in enumerate(jobs, start=1)
    ]
    answers = {
        "/overview": {"slots-total": slots, "flink-version": version},
        "/jobs/overview": {"jobs": listed},
        "/jobmanager/environment": {"classpath": [f"/opt/flink/lib/{jar}" for jar in jars]},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            flink.asked.append(f"{self.command} {self.path}")
            body = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PATCH = do_GET

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        flink = Flink(f"localhost:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield flink
        server.shutdown()
