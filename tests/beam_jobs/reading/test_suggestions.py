"""The commands that messages suggest do what they say, typed as they stand."""

import gzip
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from tests.beam_jobs.dumps import look_at

LINES = b"".join(b'{"text": "kettle %d", "stars": 5}\n' % i for i in range(200))


def type_command(command, folder):
    """Run a command of a message in a shell, in the folder."""
    tool = command.split()[0]
    assert tool in ("curl",), command
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    subprocess.run(["bash", "-c", command], cwd=folder, check=True, timeout=60)


def read_message(path, **options):
    with pytest.raises(UserError) as told:
        look_at(path, **options)
    line = str(told.value)
    assert "\n" not in line
    return line


@pytest.fixture
def address():
    """A server that says of no file how long it is."""

    class Handler(BaseHTTPRequestHandler):
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
            if "packed" in self.path:
                self.wfile.write(gzip.compress(LINES))
            else:
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(LINES), LINES))

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("name", ["chunked.jsonl", "packed.jsonl"])
def test_what_has_no_length_is_fetched_first(name, address, tmp_path):
    line = read_message(f"{address}/{name}")
    assert f"{address}/{name}" in line
    assert "Content-Length" in line
    type_command(line.partition("fetch it first: ")[2], tmp_path)
    assert (tmp_path / name).read_bytes() == LINES
