"""The guards of the Prefect server: names, origins, tokens, and clicks beside a run that writes."""

import asyncio
import base64
import json
import os
import pickle
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, WebSocket
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from starlette.requests import Request
from starlette.websockets import WebSocketDisconnect

from amazon_electra.flows.servers import prefect_application
from amazon_electra.flows.servers.settings import ADMIN_HEADER, ADMIN_VARIABLE
from tests.patience import PATIENCE_SECONDS

OWN = "http://127.0.0.1:4200"
ORIGINS, SOCKET = [OWN, "http://localhost:4200"], "ws://127.0.0.1:4200/events"


@pytest.fixture
def pages():
    """A small application behind the guards, as a client that calls it by its own name."""
    app = FastAPI()

    @app.get("/page")
    def read_page():
        return "a page"

    @app.websocket("/events")
    async def accept(socket: WebSocket):
        await socket.accept()

    return TestClient(prefect_application.guard_app(app, ["127.0.0.1", "prefect"], ORIGINS), OWN)


def test_the_server_answers_under_its_own_names_alone(pages):
    names = ("127.0.0.1:4200", "prefect", "elsewhere.example", "127.0.0.1.elsewhere.example")
    codes = [pages.get("/page", headers={"Host": name}).status_code for name in names]
    assert codes == [200, 200, 400, 400]


def test_further_names_and_origins_are_those_of_the_variables(monkeypatch):
    from prefect.settings import PREFECT_SERVER_CORS_ALLOWED_ORIGINS, temporary_settings

    monkeypatch.setenv(prefect_application.HOSTS_VARIABLE, "prefect, flows.example")
    assert prefect_application.list_host_names()[2:] == ["prefect", "flows.example"]
    assert prefect_application.read_allowed_origins() == [], "Prefect's default * is none"
    with temporary_settings({PREFECT_SERVER_CORS_ALLOWED_ORIGINS: ",".join(ORIGINS)}):
        assert prefect_application.read_allowed_origins() == ORIGINS


@pytest.mark.parametrize("origin", [None, *ORIGINS])
def test_the_ui_and_workers_open_websockets(pages, origin):
    headers = {"Origin": origin} if origin else {}
    with pages.websocket_connect(SOCKET, headers=headers):
        pass


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", f"{OWN}.evil.example"]
)
def test_no_other_page_opens_a_websocket(pages, origin):
    with (
        pytest.raises(WebSocketDisconnect) as refusal,
        pages.websocket_connect(SOCKET, headers={"Origin": origin}),
    ):
        pass
    assert refusal.value.code == 1008


def test_the_pages_may_load_and_send_nothing_elsewhere(pages):
    policy = pages.get("/page").headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'self'"
    assert "ws://localhost:4200" in rules["connect-src"]
    sources = {source for rule in rules.values() for source in rule.split()}
    hosts = {source for source in sources if "://" in source or source in ("*", "https:")}
    assert {host.split("//")[1].split(":")[0] for host in hosts} == {"127.0.0.1", "localhost"}


@pytest.mark.parametrize(("failures", "code", "calls"), [(3, 201, 4), (1000, 503, 12)])
def test_a_change_that_met_a_locked_database_is_tried_again(monkeypatch, failures, code, calls):
    monkeypatch.setattr(prefect_application, "MAX_PAUSE_SECONDS", 0.0)
    app, bodies = FastAPI(), []

    @app.exception_handler(Exception)
    async def answer_as_prefect(request, error):
        return JSONResponse({"exception_message": "Service Unavailable"}, 503)

    @app.post("/flows", status_code=201)
    def create_flow(body: dict):
        bodies.append(body)
        if len(bodies) <= failures:
            raise OSError("database is locked")
        return body

    guarded = prefect_application.ChangeMiddleware(app)
    client = TestClient(guarded, OWN, raise_server_exceptions=False)
    assert client.post("/flows", json={"name": "x"}).status_code == code
    assert bodies == [{"name": "x"}] * calls


@pytest.mark.parametrize(
    ("event", "admin", "taken"),
    [
        ({"payload": {"validated_state": {"type": "COMPLETED", "data": None}}}, "", True),
        ({"payload": {"validated_state": {"data": {"storage_key": "/x"}}}}, "", True),
        ({"payload": {"task_run": {"state": {"data": {"storage_key": "/x"}}}}}, "", True),
        ({"payload": {"validated_state": {"run_by": "/x"}}}, "", False),
        ({"payload": {"validated_state": {"data": {"storage_key": "/x"}}}}, "secret", True),
    ],
)
def test_an_event_of_all_but_an_administrator_sets_no_data_of_a_state(event, admin, taken):
    app, received = FastAPI(), []

    @app.websocket("/api/events/in")
    async def accept(socket: WebSocket):
        await socket.accept()
        async for text in socket.iter_text():
            received.append(text)

    guarded = prefect_application.ChangeMiddleware(app, "secret")
    with (
        suppress(WebSocketDisconnect),
        TestClient(guarded, OWN).websocket_connect(
            "/api/events/in", headers={ADMIN_HEADER: admin}
        ) as socket,
    ):
        socket.send_json(event)
    assert len(received) == taken
    assert taken == 0 or ("storage_key" in received[0]) == bool(admin)

    posted = []

    @app.post("/api/events")
    async def take(request: Request):
        posted.extend(await request.json())

    answer = TestClient(guarded, OWN).post(
        "/api/events", json=[event], headers={ADMIN_HEADER: admin}
    )
    assert answer.status_code == (200 if taken else 403)
    assert posted == [json.loads(text) for text in received]


def test_two_servers_that_begin_at_once_start_one_after_the_other(tmp_path):
    """The first one makes the database; here a file that must not be there yet, or whole."""
    database, barrier, found = tmp_path / "made", threading.Barrier(2), []

    @asynccontextmanager
    async def migrate(app):
        found.append(database.read_text() if database.exists() else "nothing")
        database.write_text("half")
        await asyncio.sleep(0.5)
        database.write_text("whole")
        yield

    def begin():
        app = prefect_application.StartLockMiddleware(
            FastAPI(lifespan=migrate), tmp_path / "home" / "start.lock"
        )
        barrier.wait()
        with TestClient(app):
            barrier.wait()  # both are up together: the lock is held while one starts, not longer

    with ThreadPoolExecutor() as pool:
        for begun in [pool.submit(begin) for _ in range(2)]:
            begun.result(timeout=PATIENCE_SECONDS)
    assert found == ["nothing", "whole"]


def test_a_server_that_fails_to_start_keeps_no_other_one_waiting(tmp_path):
    @asynccontextmanager
    async def fail(app):
        raise OSError("disk full")
        yield

    for _ in range(2):
        app = prefect_application.StartLockMiddleware(FastAPI(lifespan=fail), tmp_path / "lock")
        with pytest.raises(OSError, match="disk full"), TestClient(app):
            pass


@asynccontextmanager
async def open_api(headers=()):
    """A client of the server as a page of its own is one, its name, and a flow that it made."""
    client = str(uuid.uuid4())
    async with httpx.AsyncClient(
        base_url=os.environ["PREFECT_API_URL"], timeout=PATIENCE_SECONDS, auth=read_password()
    ) as api:
        token = await api.get("/csrf-token", params={"client": client})
        api.headers = {"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token.json()["token"]}
        api.headers.update(headers)
        yield api, client, (await api.post("/flows/", json={"name": client})).json()["id"]


def read_password():
    """Name and password of the server, if it has one."""
    name, _, password = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
    return (name, password) if name else None


async def answers_to_programs(admin):
    """The answers' codes of a server to changes of what runs, without and with the word."""
    async with open_api() as (api, client, flow):
        about = {"name": client, "flow_id": flow, "job_variables": {"env": {"A": "b"}}}
        made = await api.post("/deployments/", json=about, headers={ADMIN_HEADER: admin})
        here = f"/deployments/{made.json()['id']}"
        step = {"prefect.deployments.steps.run_shell_script": {"script": "touch /tmp/x"}}
        own = {"job_variables": {"command": "sh"}}
        run = {"parameters": {"path": "mine", "job_variables": "mine"}}
        changes = [
            ("PATCH", here, {"pull_steps": [step]}),
            ("PATCH", here, {"entrypoint": "os.system", "path": "/"}),
            ("POST", "/deployments/", {"name": "mine", "flow_id": flow, "entrypoint": "a.b"}),
            ("POST", f"{here}/create_flow_run", own),
            ("POST", f"{here}/create_flow_run/bulk", [run, own]),
            ("POST", f"{here}/schedules", [own]),
            ("POST", "/automations/", {"actions": [own]}),
            ("PATCH", "/work_pools/cpu", {"base_job_template": own}),
            ("PUT", "/admin/storage", {}),
            ("POST", "/work_pools/", {"name": client, "storage_configuration": {"a": "b"}}),
            ("POST", "/variables/", {"name": "of_a_pull_step", "value": "mine"}),
            ("PATCH", "/work_pools/filter", {"base_job_template": own}),
            ("PATCH", "/variables/name/labels", {"value": "mine"}),
            ("POST", "/block_types/", {"name": client, "slug": client}),
            ("POST", "/block_schemas/", {"fields": {}, "block_type_id": client}),
            ("POST", "/block_documents/", {"name": client, "data": {}}),
            ("DELETE", f"/block_documents/{client}", None),
        ]
        told = [await api.request(how, where, json=what) for how, where, what in changes]
        assert all("administrator" in answer.json()["detail"] for answer in told)
        taken = [
            ("POST", f"{here}/create_flow_run", run),
            ("POST", f"{here}/create_flow_run", {"job_variables": {"env": {"A": "b"}}}),
            ("PATCH", here, {"job_variables": {"env": {"A": "b"}}, "paused": True}),
        ]
        let = [await api.request(how, where, json=what) for how, where, what in taken]
        for word in ("another", admin):
            given = {ADMIN_HEADER: word}
            let.append(await api.patch(here, json={"pull_steps": [step]}, headers=given))
        return [a.status_code for a in told], [a.status_code for a in let]


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [("4711", True), ("", True), ("cluster:namespace:job", False), (["4711"], False)],
)
def test_a_worker_names_processes_and_nobody_names_jobs_of_a_cluster(value, is_taken):
    refused = prefect_application.find_refused("flow_runs", {"infrastructure_pid": value})
    assert refused == ({} if is_taken else {"infrastructure_pid": [value]})


def test_only_an_administrator_says_which_program_runs(prefect_home):
    refused, others = asyncio.run(answers_to_programs(os.environ[ADMIN_VARIABLE]))
    assert set(refused) == {403}
    assert others == [201, 201, 204, 403, 204]


class Executes:
    """What is executed when this is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.fixture
def attack(tmp_path):
    """Data of a state that names a pickle which makes a file when it is read, and that file."""
    mark, pickled = tmp_path / "executed", tmp_path / "result"
    serializer = {"type": "pickle", "picklelib": "cloudpickle"}
    code = base64.encodebytes(pickle.dumps(Executes(mark))).decode()
    pickled.write_text(json.dumps({"metadata": {"serializer": serializer}, "result": code}))
    return {"storage_key": str(pickled), "serializer": serializer}, mark


async def set_data(data):
    """Tries all ways to give a state data that are read as code, as one who has the password;
    returns the answers, and the data that the server has kept. What came of it is read as Prefect's
    engine does.
    """
    from prefect.client.orchestration import get_client

    state = {"type": "COMPLETED", "data": data}
    async with open_api() as (api, _, flow), get_client() as reader:
        run = (await api.post("/flow_runs/", json={"flow_id": flow})).json()["id"]
        task = {"task_key": "a", "dynamic_key": "b", "flow_run_id": run}
        event = {
            "occurred": "2026-01-01T00:00:00Z",
            "event": "prefect.task-run.Completed",
            "resource": {"prefect.resource.id": f"prefect.task-run.{uuid.uuid4()}"},
            "related": [
                {
                    "prefect.resource.id": f"prefect.flow-run.{run}",
                    "prefect.resource.role": "flow-run",
                }
            ],
            "payload": {"validated_state": state, "task_run": task},
            "id": str(uuid.uuid4()),
        }
        ways = [
            ("POST", f"/flow_runs/{run}/set_state", {"state": state, "force": True}),
            ("POST", "/flow_runs/bulk_set_state", {"flow_runs": {}, "state": state}),
            ("POST", "/flow_runs/", {"flow_id": flow, "state": state}),
            ("POST", "/task_runs/", {**task, "state": state}),
            ("POST", "/events", [event]),
            ("POST", "/artifacts/", {"type": "result", "data": data}),
        ]
        answers, kept = [], []
        for how, where, what in ways:
            answer = await api.request(how, where, json=what)
            answers.append(answer.status_code)
            made = answer.json() if answer.is_success and answer.content else {}
            if isinstance(made, dict) and isinstance(made.get("state"), dict):
                kept.append(made["state"].get("data"))
            found = (await reader.read_flow_run(run)).state
            kept.append(found.data if found else None)
            if found and found.is_completed():
                with suppress(Exception):
                    await found.aresult(raise_on_failure=False)
        return answers, kept


def test_nobody_has_a_state_read_as_code(prefect_home, attack):
    data, mark = attack
    answers, kept = asyncio.run(set_data(data))
    assert not mark.exists()
    assert answers[-1] == 403, "an artifact's"
    assert all(200 <= answer < 300 for answer in answers[:-1]), "taken without the data"
    assert kept
    assert set(kept) == {None}


def test_a_run_that_fails_is_recorded_without_the_secret(prefect_home, monkeypatch):
    """Prefect's engine sends data with the state of every failure."""
    from prefect import flow
    from prefect.context import refresh_global_settings_context

    @flow
    def failing():
        raise ZeroDivisionError("by nought")

    with monkeypatch.context() as without:
        without.delenv("PREFECT_CLIENT_CUSTOM_HEADERS")
        refresh_global_settings_context()
        state = failing(return_state=True)
    refresh_global_settings_context()
    assert state.is_failed()
    assert "by nought" in state.message
    run = asyncio.run(read_run(state.state_details.flow_run_id))
    assert (run.state.type.value, run.state.data) == ("FAILED", None)


async def read_run(run):
    """The run as the server knows it."""
    from prefect.client.orchestration import get_client

    async with get_client() as reader:
        return await reader.read_flow_run(run)


def test_the_guards_and_tokens_of_the_server_that_we_start(prefect_home):
    """Its settings too: no page but the UI may read a token, and no change comes without one."""
    own, client = os.environ["PREFECT_API_URL"].removesuffix("/api"), str(uuid.uuid4())
    with httpx.Client(base_url=f"{own}/api", timeout=PATIENCE_SECONDS, auth=read_password()) as api:

        def read_token(page):
            address = f"/csrf-token?client={client}"
            answer = api.get(address, headers={"Origin": page})
            return answer.json()["token"], answer.headers.get("access-control-allow-origin")

        for page in (own, own.replace("127.0.0.1", "localhost")):
            assert read_token(page)[1] == page
        for page in ("http://elsewhere.example", "null", "http://127.0.0.1:1"):
            assert read_token(page)[1] is None

        def create_flow(**headers):
            return api.post("/flows/", json={"name": client}, headers=headers).status_code

        token = read_token(own)[0]
        assert create_flow() == 403
        assert create_flow(**{"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": "x"}) == 403
        assert create_flow(**{"Prefect-Csrf-Client": "y", "Prefect-Csrf-Token": token}) == 403
        assert create_flow(**{"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token}) == 201
        assert api.get("/health", headers={"Host": "elsewhere.example"}).status_code == 400
        policy = httpx.get(f"{own}/dashboard").headers["content-security-policy"]
        assert own.replace("http", "ws") in policy


def test_the_server_of_a_run_answers_nobody_without_its_password(prefect_home):
    """Every account of the machine finds its port in /proc/net/tcp."""
    with httpx.Client(base_url=os.environ["PREFECT_API_URL"], timeout=PATIENCE_SECONDS) as other:
        for path in ("/csrf-token?client=x", "/admin/version", "/flow_runs/history"):
            for given in (None, ("electra", "wrong"), ("electra", "")):
                assert other.get(path, auth=given).status_code == 401
        assert other.get("/csrf-token?client=x", auth=read_password()).status_code == 200
