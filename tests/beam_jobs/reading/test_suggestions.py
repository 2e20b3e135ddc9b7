"""The command that a message suggests does what it says, typed as it stands."""

import gzip
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.beam_jobs.dumps import look_at, refuses

LINES = b"".join(b'{"text": "kettle %d", "stars": 5}\n' % i for i in range(200))


class Handler(BaseHTTPRequestHandler):
    """Says of no file how long it is."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.send_response(200)
        if "packed" in self.path:
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(gzip.compress(LINES))))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(LINES), LINES)
        self.wfile.write(gzip.compress(LINES) if "packed" in self.path else chunk)

    def log_message(self, *_):
        pass


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.parametrize("name", ["chunked.jsonl", "packed.jsonl"])
def test_what_has_no_length_is_fetched_first(name, tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{name}"
        with refuses(address, "Content-Length") as told:
            look_at(address)
        command = str(told.value).partition("fetch it first: ")[2]
        subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, timeout=60)
        server.shutdown()
    assert (tmp_path / name).read_bytes() == LINES
