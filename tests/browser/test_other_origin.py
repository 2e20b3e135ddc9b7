"""A page of another origin, opened on the server's machine, cannot drive the Prefect server."""

import json
import threading
import uuid
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from flows.servers.settings import DUMP_EVENT

OPEN_SOCKET = """
([address, event]) => new Promise(done => {
  const socket = new WebSocket(address, ["prefect"]);
  socket.onopen = () => {
    socket.send(JSON.stringify({type: "auth", token: ""}));
    if (event) socket.send(event);
  };
  socket.onmessage = (message) => done("message " + message.data);
  socket.onerror = () => done("refused");
})
"""


class BlankPage(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<p>a page")

    def log_message(self, *words):
        pass


@pytest.fixture
def other_origin():
    server = HTTPServer(("127.0.0.1", 0), BlankPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("ui", ["", "/v2"])
def test_pages_of_the_server_ask_nobody_else(servers, page, other_origin, picture, ui):
    """The fixture of the page fails where one of its requests has left this machine."""
    fetch = "address => fetch(address, {mode: 'no-cors'}).then(() => 'sent', () => 'refused')"
    page.goto(f"{servers.prefect}{ui}/deployments")
    page.get_by_text("domain-adaptation").first.wait_for()
    picture(page, f"deployments{ui.replace('/', '-')}")
    assert page.evaluate(fetch, other_origin) == "refused"
    assert page.evaluate(fetch, f"{servers.prefect}/api/health") == "sent"


@pytest.mark.parametrize("path", ["/api/events/in", "/api/events/out"])
def test_a_page_of_another_origin_opens_no_websocket(servers, page, other_origin, path):
    event = {
        "id": str(uuid.uuid4()),
        "occurred": datetime.now(UTC).isoformat(),
        "event": DUMP_EVENT,
        "resource": {"prefect.resource.id": "reviews.inbox"},
        "payload": {"dump": "inbox/a.json"},
    }
    address = servers.prefect.replace("http://", "ws://") + path
    page.goto(other_origin)
    assert page.evaluate(OPEN_SOCKET, [address, json.dumps(event)]) == "refused"
    page.goto(f"{servers.prefect}/api/health")
    answer = page.evaluate(OPEN_SOCKET, [address, None])
    assert json.loads(answer.removeprefix("message "))["type"] == "auth_success"
