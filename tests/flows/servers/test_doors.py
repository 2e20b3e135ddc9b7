"""Without the store's password both servers answer nothing that holds data of the store."""

import inspect
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import psutil
import pytest
from prefect.server.database.configurations import AioSqliteConfiguration
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from amazon_electra.flows.servers.access import find_free_port, is_healthy, read_password
from amazon_electra.flows.servers.stock import (
    start_mlflow_server,
    start_prefect_server,
    wait_until_healthy,
)
from tests.patience import PATIENCE_SECONDS

OPEN = {
    "prefect": {"/", "/ui-settings", "/docs", "/openapi.json", "/api/health", "/api/ready"},
    "mlflow": {"/health", *(f"/{api}/3.0/mlflow/server-info" for api in ("api", "ajax-api"))},
}
STATIC = r"/(assets|static-files)/"
HEALTH = {"prefect": "/api/health", "mlflow": "/health"}


@pytest.fixture(scope="module")
def store(tmp_path_factory, begin_store):
    return begin_store(tmp_path_factory.mktemp("doors") / "store")


@pytest.fixture(scope="module")
def addresses(store):
    found, children = {}, []
    for name, start in (("prefect", start_prefect_server), ("mlflow", start_mlflow_server)):
        port = find_free_port()
        found[name] = f"http://127.0.0.1:{port}"
        children.append((name, start(store, port)))
    try:
        for name, child in children:
            wait_until_healthy(name, child, partial(is_healthy, found[name] + HEALTH[name]))
        yield found
    finally:
        for _, child in children:
            child.end()


def list_doors(name, address):
    """Methods and paths of a server, by itself and by its application."""
    if name == "prefect":
        schema = httpx.get(f"{address}/openapi.json", timeout=PATIENCE_SECONDS).json()
        paths = schema["paths"]
        return {(method.upper(), path) for path, of in paths.items() for method in of}
    from mlflow.server import app as flask
    from mlflow.server.fastapi_app import app as fast

    doors = {(m, rule.rule) for rule in flask.url_map.iter_rules() for m in rule.methods}
    doors |= {(m, r.path) for r in fast.routes for m in getattr(r, "methods", None) or ()}
    return {(method, re.sub(r"<[^>]*>", "{x}", path)) for method, path in doors}


@pytest.mark.parametrize("name", OPEN)
def test_only_named_doors_open_without_password(addresses, name):
    doors = {(m, p) for m, p in list_doors(name, addresses[name]) if m not in ("OPTIONS", "HEAD")}
    assert len(doors) > 100
    opened = set()
    with httpx.Client(base_url=addresses[name], timeout=PATIENCE_SECONDS) as client:
        for method, path in doors | {("GET", door) for door in OPEN[name]}:
            url = re.sub(r"{[^}]*}", "1", path)
            answer = client.request(method, url, json=None if method == "GET" else {})
            if answer.status_code not in (401, 404, 405) and not re.match(STATIC, url):
                opened.add((method, url))
    assert opened == {("GET", path) for path in OPEN[name]}


def test_the_password_opens_both(addresses, store):
    auth = tuple(read_password(store).split(":"))
    for name, path in (
        ("prefect", "/api/admin/version"),
        ("mlflow", "/api/2.0/mlflow/experiments/get?experiment_id=0"),
    ):
        for word, code in ((("admin", "wrong-word-of-the-tests"), 401), (auth, 200)):
            url = addresses[name] + path
            assert httpx.get(url, auth=word, timeout=PATIENCE_SECONDS).status_code == code


def try_socket(url, first):
    """What a WebSocket gives to one whose first message is this; nothing where it is refused."""
    try:
        with connect(url, subprotocols=["prefect"] if first else None) as socket:
            if first:
                socket.send(json.dumps(first))
            return json.loads(socket.recv(PATIENCE_SECONDS)).get("type")
    except (InvalidStatus, ConnectionClosed):
        return None


def test_no_socket_opens_without_password(addresses, store):
    from prefect.server.api.server import API_ROUTERS
    from starlette.routing import WebSocketRoute

    routes = [route for router in API_ROUTERS for route in router.routes]
    paths = [r.path for r in routes if isinstance(r, WebSocketRoute)]
    assert "/events/in" in paths
    base = addresses["prefect"].replace("http", "ws") + "/api"
    for path in paths:
        url = base + re.sub(r"{[^}]*}", "1", path)
        for token in (None, "", "admin:wrong-word-of-the-tests"):
            first = None if token is None else {"type": "auth", "token": token}
            assert try_socket(url, first) is None, path
    right = {"type": "auth", "token": read_password(store)}
    assert try_socket(f"{base}/events/out", right) == "auth_success"


def test_the_password_is_its_owners(tmp_path):
    """Also where the umask lets others read."""
    before = os.umask(0)
    try:
        first = read_password(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / "password").stat().st_mode & 0o777 == 0o600
    assert read_password(tmp_path) == first
    assert re.fullmatch(r"admin:\S{32}", first)


def test_no_command_line_or_file_has_it(addresses, store):
    word = read_password(store).partition(":")[2]
    for process in psutil.Process().children(recursive=True):
        assert word not in " ".join(process.cmdline())
    files = [p for p in store.rglob("*") if p.is_file() and word.encode() in p.read_bytes()]
    assert files == [store / "password"]


def click(client, seconds):
    """What the UI and a run write again and again: the codes of all answers."""
    codes, last = [], time.monotonic() + seconds
    flow = client.post("/api/flows/", json={"name": "clicks"}).json()["id"]
    while time.monotonic() < last:
        made = client.post("/api/flow_runs/", json={"flow_id": flow, "state": {"type": "PENDING"}})
        codes.append(made.status_code)
        if made.is_success:
            run = made.json()["id"]
            for state in ("RUNNING", "COMPLETED"):
                change = {"state": {"type": state}, "force": True}
                path = f"/api/flow_runs/{run}/set_state"
                codes.append(client.post(path, json=change).status_code)
            line = {"name": "n", "level": 20, "message": "m", "flow_run_id": run}
            line["timestamp"] = "2026-01-01T00:00:00Z"
            codes.append(client.post("/api/logs/", json=[line] * 50).status_code)
    return codes


def test_two_writing_threads_lose_no_click(addresses, store):
    auth = tuple(read_password(store).split(":"))
    options = {"base_url": addresses["prefect"], "auth": auth, "timeout": PATIENCE_SECONDS}
    with httpx.Client(**options) as client, ThreadPoolExecutor(2) as pool:
        codes = [code for codes in pool.map(click, [client] * 2, [8, 8]) for code in codes]
    assert len(codes) > 8
    assert {code for code in codes if code not in (200, 201)} == set()


def test_prefect_has_the_function_that_is_wrapped():
    parameters = inspect.signature(AioSqliteConfiguration.begin_transaction).parameters
    assert list(parameters) == ["self", "session", "with_for_update"]
    source = inspect.getsource(AioSqliteConfiguration.begin_transaction)
    assert '"IMMEDIATE" if with_for_update' in source
