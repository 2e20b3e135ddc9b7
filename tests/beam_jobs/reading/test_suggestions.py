"""The commands that messages suggest do what they say, typed as they stand."""

import gzip
import json
import shutil
import sqlite3
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.hosts import PRIVATE_HOSTS_VARIABLE
from tests.beam_jobs.dumps import look_at, run_job

LINES = b"".join(b'{"text": "kettle %d", "stars": 5}\n' % i for i in range(200))


def type_command(command, folder):
    """Run a command of a message in a shell, in the folder."""
    tool = command.split()[0]
    assert tool in ("curl", "iconv", "sqlite3", "sed", "jq", "tr", "unzip"), command
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
def address(monkeypatch):
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

    monkeypatch.setenv(PRIVATE_HOSTS_VARIABLE, "127.0.0.1")
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


CSV = b"text,stars\n" + b"".join(
    b"the kettle number %d boils,%d\n" % (i, i % 5 + 1) for i in range(60)
)
OBJECTS = [{"text": f"kettle {i} boils", "stars": i % 5 + 1} for i in range(60)]
COMMENTED = (
    "// of a tool\n[\n" + ",\n".join(f"{json.dumps(one)} /* ok */" for one in OBJECTS) + "\n]"
)


def write_database(path):
    database = sqlite3.connect(path)
    database.execute('create table "my reviews" (text text, stars int)')
    database.execute("create table notes (note text)")
    rows = [tuple(one.values()) for one in OBJECTS]
    database.executemany('insert into "my reviews" values (?, ?)', rows)
    database.commit()
    database.close()
    return path.read_bytes()


GIVEN = {
    "my reviews.csv": (CSV.decode().encode("utf-16-le"), "convert it first: "),
    "big.csv": (CSV.decode().encode("utf-16-be"), "convert it first: "),
    "q.sqlite": (write_database, "write its table as CSV: "),
    "comments.json": (COMMENTED.encode(), "take them out: "),
    "script.json": (b"var reviews = " + json.dumps(OBJECTS).encode() + b";", "around it: "),
    "strings.json": (json.dumps(json.dumps(OBJECTS)).encode(), "decode it: "),
    "mac os.csv": (CSV.replace(b"\n", b"\r"), "convert them first: "),
    "late.csv": (b"of a tool;\n\n" + CSV.replace(b",", b";"), "what is above it: "),
    "bare.csv": (CSV.partition(b"\n")[2].replace(b",", b"\t"), "its 2 columns: "),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_command_makes_a_file_that_is_read(name, tmp_path):
    content, before = GIVEN[name]
    given = tmp_path / name
    given.write_bytes(content if isinstance(content, bytes) else content(given))
    line = read_message(given)
    command = line.partition(before)[2].partition("; or, if each line")[0]
    type_command(command, tmp_path)
    written = [path for path in tmp_path.iterdir() if path != given] or [given]
    [made] = written
    assert dict(look_at(made).layout.mapping)["text"] == "text"
    assert run_job(tmp_path.with_name(f"{tmp_path.name}-made"), "--input", made)["kept"] == 60
