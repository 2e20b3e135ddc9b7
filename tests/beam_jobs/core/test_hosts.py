"""Which hosts may be read from: the address that was checked is the one that is connected to."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from amazon_electra.beam_jobs.core import hosts, storage
from amazon_electra.beam_jobs.core.errors import UserError

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    ("ip", "is_public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1", True),
        ("64:ff9b::808:808", True),
        ("64:ff9b::a9fe:a9fe", False),  # NAT64 of 169.254.169.254
        ("64:ff9b:1::808:808", False),
        ("2002:a9fe:a9fe::1", False),  # 6to4 of the same
        ("2002:808:808::1", True),
        ("::ffff:10.0.0.1", False),
        ("224.0.0.1", False),
        ("ff0e::1", False),
        ("fe80::1%eth0", False),
        ("127.0.0.1", False),
    ],
)
def test_which_addresses_are_public(ip, is_public):
    assert hosts.is_public(ip) is is_public


class Secret(BaseHTTPRequestHandler):
    """A page of the private network; remembers that it was asked."""

    asked: ClassVar[list[str]] = []

    def do_GET(self):
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secret")

    do_HEAD = do_GET

    def log_message(self, *words): ...


@pytest.fixture
def rebound(monkeypatch):
    """The address of a server whose name is public when it is asked for first, private later."""
    server = HTTPServer(("127.0.0.1", 0), Secret)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    answers, ask = [PUBLIC], socket.getaddrinfo

    def resolve(name, port, *arguments, **options):
        if name == "rebound.example":
            name = answers.pop() if answers else "127.0.0.1"
        return ask(name, port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    Secret.asked.clear()
    yield f"http://rebound.example:{server.server_port}/page"
    server.shutdown()
    server.server_close()


def test_a_name_that_becomes_private_is_not_asked(rebound):
    with pytest.raises(UserError, match=r"rebound\.example, 127\.0\.0\.1"):
        storage.read_range(rebound, 0, 6)
    assert not Secret.asked
