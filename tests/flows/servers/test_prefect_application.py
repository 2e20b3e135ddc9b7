"""Clicks beside a run that writes: the UI sends each once, so each must be taken."""

import asyncio
import itertools
import os
import uuid
from collections import Counter

import httpx
import pytest
from fastapi import FastAPI

from tests.patience import PATIENCE_SECONDS

STARTS, WRITERS, EACH = 4, 3, 12


async def answers_to_clicks_beside_writers():
    """The answers' codes to requests that start runs, which come beside requests that write logs.
    No retries.
    """
    client = str(uuid.uuid4())
    async with httpx.AsyncClient(
        base_url=os.environ["PREFECT_API_URL"], timeout=PATIENCE_SECONDS
    ) as api:
        token = await api.get("/csrf-token", params={"client": client})
        api.headers = {"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token.json()["token"]}
        flow = (await api.post("/flows/", json={"name": client})).json()["id"]
        deployment = (
            await api.post("/deployments/", json={"name": client, "flow_id": flow})
        ).json()["id"]
        line = {
            "name": "test",
            "level": 20,
            "message": "a line",
            "timestamp": "2026-01-01T00:00:00Z",
        }

        async def sent(address, body):
            return [(await api.post(address, json=body)).status_code for _ in range(EACH)]

        clicks = [sent(f"/deployments/{deployment}/create_flow_run", {}) for _ in range(STARTS)]
        logs = [sent("/logs/", [line] * 20) for _ in range(WRITERS)]
        codes = await asyncio.gather(*clicks, *logs)
        question = {"deployments": {"id": {"any_": [deployment]}}}
        runs = (await api.post("/flow_runs/count", json=question)).json()
        return Counter(itertools.chain(*codes)), runs


def test_every_click_starts_a_run_while_others_write(prefect_home):
    codes, runs = asyncio.run(answers_to_clicks_beside_writers())
    assert codes == {201: (STARTS + WRITERS) * EACH}
    assert runs == STARTS * EACH


def asked(path, **headers):
    """The answer of the tests' server."""
    return httpx.get(
        f"{os.environ['PREFECT_API_URL']}{path}", headers=headers, timeout=PATIENCE_SECONDS
    )


def test_no_page_but_the_ui_may_read_a_token(prefect_home):
    own = os.environ["PREFECT_API_URL"].removesuffix("/api")
    allowed = "access-control-allow-origin"
    for page in (own, own.replace("127.0.0.1", "localhost")):
        assert asked("/csrf-token?client=page", Origin=page).headers[allowed] == page
    for page in ("http://elsewhere.example", "null", "http://127.0.0.1:1"):
        assert allowed not in asked("/csrf-token?client=page", Origin=page).headers


def test_the_server_answers_under_its_own_names_alone(prefect_home):
    port = os.environ["PREFECT_API_URL"].split(":")[2].removesuffix("/api")
    assert asked("/health", Host=f"localhost:{port}").status_code == 200
    assert asked("/health", Host="elsewhere.example").status_code == 400
    assert asked("/health", Host=f"127.0.0.1.elsewhere.example:{port}").status_code == 400


def test_further_names_of_the_server_are_those_of_the_variable_and_its_own_services_need_none(
    monkeypatch,
):
    from fastapi.testclient import TestClient

    from flows.servers import prefect_application

    inner = FastAPI()
    monkeypatch.setenv(prefect_application.HOSTS_VARIABLE, "prefect, flows.example")
    monkeypatch.setattr(prefect_application.server, "create_app", lambda: inner)
    outer = prefect_application.create_app()
    codes = {
        host: TestClient(outer, f"http://{host}").get("/").status_code
        for host in ("flows.example", "x.y")
    }
    assert codes == {"flows.example": 404, "x.y": 400}
    assert TestClient(inner, "http://prefect-in-memory").get("/").status_code == 404


def open_websocket(path, origin):
    """Open and close a WebSocket as a page of this origin would, or a worker (None)."""
    from websockets.sync.client import connect

    address = os.environ["PREFECT_API_URL"].replace("http://", "ws://")
    connect(
        f"{address}{path}", origin=origin, subprotocols=["prefect"], open_timeout=PATIENCE_SECONDS
    ).close()


def test_no_page_but_the_ui_opens_a_websocket(prefect_home):
    from websockets.exceptions import InvalidStatus

    own = os.environ["PREFECT_API_URL"].removesuffix("/api")
    for path in ("/events/in", "/events/out", "/logs/out"):
        for origin in (None, own, own.replace("127.0.0.1", "localhost")):
            open_websocket(path, origin)
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1", f"{own}.evil.example"):
            with pytest.raises(InvalidStatus) as refusal:
                open_websocket(path, origin)
            assert refusal.value.response.status_code == 403, origin


def test_the_pages_may_load_and_send_nothing_elsewhere(prefect_home):
    own = os.environ["PREFECT_API_URL"].removesuffix("/api")
    for path in ("/dashboard", "/v2/dashboard", "/api/health"):
        policy = httpx.get(f"{own}{path}", timeout=PATIENCE_SECONDS).headers[
            "content-security-policy"
        ]
        rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
        assert rules["default-src"] == "'self'"
        assert own.replace("http", "ws").replace("127.0.0.1", "localhost") in rules["connect-src"]
        sources = {source for rule in rules.values() for source in rule.split()}
        hosts = {source for source in sources if "://" in source or source in ("*", "https:")}
        assert {host.split("//")[1].split(":")[0] for host in hosts} == {"127.0.0.1", "localhost"}


def test_a_change_without_a_token_of_its_client_is_refused(prefect_home):
    client = str(uuid.uuid4())
    with httpx.Client(base_url=os.environ["PREFECT_API_URL"], timeout=PATIENCE_SECONDS) as api:
        token = api.get("/csrf-token", params={"client": client}).json()["token"]

        def create_flow(**headers):
            return api.post("/flows/", json={"name": client}, headers=headers).status_code

        assert create_flow() == 403
        assert create_flow(**{"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": "x"}) == 403
        assert create_flow(**{"Prefect-Csrf-Client": "y", "Prefect-Csrf-Token": token}) == 403
        assert create_flow(**{"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token}) == 201
