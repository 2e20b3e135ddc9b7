"""Prefect's own application behind five guards.

`python -m amazon_electra.flows.servers.prefect_application --host HOST --port PORT` serves it.

- It answers under its own names alone. A page that makes its own name stand for this machine's
  address would else pass for the UI, and start runs.
- It refuses WebSockets to the pages of other origins. Neither the CSRF token nor CORS covers them,
  so any page in a browser on this machine could else send events and read the history.
- Its pages may load and send nothing elsewhere: Prefect's newer UI brings a package that reports to
  a third party, and the Markdown of an artifact may name an image of any server.
- What a worker, the serving process or a run executes is set by an administrator alone, who knows
  AMAZON_ELECTRA_PREFECT_ADMIN. Everybody else may start and steer runs of the deployments that
  there are, with the fields of `FIELDS` and nothing else: no pull steps, entrypoints, job variables
  or templates of pools, no blocks and variables that these may name, and no data of a state, which
  Prefect's engine unpickles.
- A change that the database could not take, since another connection was writing, is tried again.
  Prefect answers it with 503, which its clients repeat and its UI does not: a click on Submit or
  Resume would be lost.

Two servers that begin at once on one database start one after the other.
"""

import argparse
import asyncio
import json
import os
import random
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import uvicorn
from prefect.settings import PREFECT_HOME, PREFECT_SERVER_CORS_ALLOWED_ORIGINS
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.status import HTTP_503_SERVICE_UNAVAILABLE, WS_1008_POLICY_VIOLATION
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amazon_electra.beam_jobs.core.locks import exclusive_lock
from amazon_electra.flows.servers.settings import ADMIN_HEADER, ADMIN_VARIABLE

LOCAL_NAMES = ["127.0.0.1", "localhost"]
HOSTS_VARIABLE = "AMAZON_ELECTRA_PREFECT_HOSTS"
"""Environment variable with further names, separated by commas, under which browsers and workers
reach the server.
"""
ATTEMPTS = 12
"""Of a change that meets 503; the pauses between them add up to half a minute at most."""
MAX_PAUSE_SECONDS = 4.0
READS = {
    *("filter", "count", "history", "paginate", "lateness", "next-runs", "validate"),
    *("get_scheduled_flow_runs", "get_runs", "concurrency_status"),
}
"""Last parts of the paths whose POST reads."""
UNRELATED = {
    *("logs", "concurrency_limits", "v2", "saved_searches", "templates", "ui"),
}
"""Parts of the API that decide of no program."""
PARTS = {
    *("flows", "flow_runs", "task_runs", "deployments", "work_pools", "work_queues"),
    *("artifacts", "automations"),
}
"""Parts of which everybody may set `FIELDS`; of the others (blocks, variables, the server's own
settings) nothing.
"""
FIELDS = {
    # flows, runs, tasks
    *("name", "tags", "labels", "flow_id", "flow_version", "deployment_id", "parent_task_run_id"),
    *("parameters", "context", "empirical_policy", "idempotency_key", "state", "force"),
    *("id", "flow_run_id", "task_run_id", "task_key", "dynamic_key", "task_version", "task_inputs"),
    *("cache_key", "cache_expiration", "run_input", "key", "value", "sender"),
    # deployments, their schedules, pools, queues
    *("description", "version", "version_info", "paused", "schedules", "concurrency_limit"),
    *("concurrency_options", "global_concurrency_limit_id", "enforce_parameter_schema"),
    *("parameter_openapi_schema", "work_pool_name", "work_queue_name", "collision_strategy"),
    *("grace_period_seconds", "active", "schedule", "max_scheduled_runs", "slug", "replaces"),
    *("start_time", "end_time", "min_time", "min_runs", "max_runs", "type", "is_paused"),
    *("priority", "filter", "last_polled", "heartbeat_interval_seconds"),
    *("metadata", "return_id"),
    # artifacts, automations, and changes of several runs at once
    *("data", "metadata_", "enabled", "trigger", "actions", "actions_on_trigger", "source"),
    *("actions_on_resolve", "owner_resource", "schedule_after", "message", "automation_id"),
    *("work_pool_id", "work_queue_id", "block_document_id", "payload", "subject", "body"),
    *("flows", "flow_runs", "deployments", "limit"),
}
"""Fields that everybody may set, at any depth."""
OF_USERS = {
    *("parameters", "parameter_openapi_schema", "context", "labels", "value", "run_input"),
    *("empirical_policy", "task_inputs", "filter", "flows", "flow_runs", "deployments"),
    *("schedule", "trigger", "version_info", "metadata_", "metadata", "payload"),
}
"""Fields whose content is taken as it is: names of the users' own, filters, schedules."""
PROCESS_FIELD = "infrastructure_pid"
"""What a worker started a run as. Everybody may set it to the number of a process, which only names
it; a worker of containers would end what it names anywhere in its cluster.
"""
STATE_FIELDS = {"type", "name", "message", "state_details"}
"""Fields of a state that everybody may set. Its `data` says which file Prefect unpickles."""


class ChangeMiddleware:
    """Refuses a change of what runs to all but an administrator, and repeats a change that is
    answered with 503: nothing of a refused transaction was written.
    """

    def __init__(self, app: ASGIApp, admin: str = ""):
        """`admin` is the administrator's word; empty: there is none."""
        self.app, self.admin = app, admin.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self.app(scope, self.check_messages(scope, receive, send), send)
            return
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        if not is_administrator(Headers(scope=scope), self.admin):
            body = drop_state_data(scope["path"], body)
        if why := await self.explain_refusal(scope, body):
            await JSONResponse({"detail": why}, 403)(scope, receive, send)
            return
        for attempt in range(1, ATTEMPTS + 1):
            is_last = attempt == ATTEMPTS
            if not await self.forward(scope, body, receive, send, is_last):
                return
            await asyncio.sleep(random.uniform(0, min(0.05 * 2**attempt, MAX_PAUSE_SECONDS)))

    def check_messages(self, scope: Scope, receive: Receive, send: Send) -> Receive:
        """Return what receives the messages of a WebSocket, without the data of states, and closes
        one whose event sets what an administrator alone may set.
        """
        if is_administrator(Headers(scope=scope), self.admin):
            return receive

        async def receive_checked() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                try:
                    sent = json.loads(message.get("text") or message.get("bytes") or b"{}")
                    if clear_states("events", sent):
                        message = {"type": "websocket.receive", "text": json.dumps(sent)}
                    is_refused = bool(find_refused("events", sent))
                except (ValueError, RecursionError):
                    is_refused = True
                if is_refused:
                    await send({"type": "websocket.close", "code": WS_1008_POLICY_VIOLATION})
                    return {"type": "websocket.disconnect", "code": WS_1008_POLICY_VIOLATION}
            return message

        return receive_checked

    async def explain_refusal(self, scope: Scope, body: bytes) -> str:
        """Return why a change is an administrator's, or an empty text.

        The forms of the UI send the job variables of a deployment back as they are; that is none.
        """
        headers = Headers(scope=scope)
        if is_administrator(headers, self.admin):
            return ""
        parts = scope["path"].strip("/").removeprefix("api/").split("/")
        way = scope["method"], parts[0]
        is_read = way[0] == "POST" and parts[-1] in READS
        if is_read or parts[0] in UNRELATED:
            return ""
        if way == ("PATCH", "flow_runs") and parts[2:] == ["labels"]:
            return ""
        try:
            found = find_refused(parts[0], json.loads(body or b"{}"))
        except (ValueError, RecursionError):
            return "the request is not JSON, or nested too deeply"
        if found.get("job_variables") and parts[0] == "deployments" and len(parts) > 1:
            place = f"{scope['path'].split('/deployments/')[0]}/deployments/{parts[1]}"
            names = {"authorization", "host"} & set(headers)
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as inner:
                there = await inner.get(place, headers={n: headers[n] for n in names})
            if there.is_success and found["job_variables"] == [there.json().get("job_variables")]:
                del found["job_variables"]
        what = ", ".join(sorted(found))
        return f"{what}: only an administrator may set this ({ADMIN_VARIABLE})" if what else ""

    async def forward(
        self, scope: Scope, body: bytes, receive: Receive, send: Send, is_last: bool
    ) -> bool:
        """Pass the request on, and its answer back; return whether that was 503 and is dropped."""
        others = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        headers = [*others, (b"content-length", str(len(body)).encode())]
        request: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        refused = False

        async def receive_again() -> Message:
            return request.pop() if request else await receive()

        async def send_unless_refused(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start":
                refused = message["status"] == HTTP_503_SERVICE_UNAVAILABLE and not is_last
            if not refused:
                await send(message)

        try:
            await self.app({**scope, "headers": headers}, receive_again, send_unless_refused)
        except Exception:
            if not refused:  # Starlette raises the error once more that it has answered
                raise
        return refused


def is_administrator(headers: Headers, admin: bytes) -> bool:
    """Return whether a request has the administrator's secret; an empty one is nobody's."""
    given = headers.get(ADMIN_HEADER, "").encode()
    return bool(admin) and secrets.compare_digest(given, admin)


def drop_state_data(path: str, body: bytes) -> bytes:
    """Return the body of a change without the `data` of the states in it.

    Prefect's engine sends some for each run that fails, also where results are not kept, and would
    unpickle what it names; the state's message says why the run failed.
    """
    try:
        content = json.loads(body or b"{}")
        part = path.strip("/").removeprefix("api/").split("/")[0]
        return json.dumps(content).encode() if clear_states(part, content) else body
    except (ValueError, RecursionError):
        return body  # refused later


def clear_states(part: str, content: Any) -> bool:
    """Set the `data` of all states in a change of a part of the API to null, in place; return
    whether there was any.
    """
    if isinstance(content, list):
        cleared = [clear_states(part, one) for one in content]  # all, not up to the first
        return any(cleared)
    found = False
    for name, value in content.items() if isinstance(content, dict) else ():
        if name in ("state", "validated_state") and isinstance(value, dict):
            found |= bool(value.get("data"))
            if "data" in value:
                value["data"] = None
        elif name not in OF_USERS or (part == "events" and name == "payload"):
            found |= clear_states(part, value)
    return found


def find_refused(part: str, content: Any) -> dict[str, list[Any]]:
    """Return what a change of a part of the API sets that an administrator alone may set, by name,
    at any depth.
    """
    if part == "events":
        events = content if isinstance(content, list) else [content]
        return collect(map(find_state_of_event, events))
    if part not in PARTS:
        return {part: [content]}
    if part == "artifacts" and isinstance(content, dict):
        data = content.get("data")  # an object would be read as the place of a result
        return {"data": [data]} if isinstance(data, dict) else find_fields({**content, "data": ""})
    return find_fields(content)


def find_fields(content: Any) -> dict[str, list[Any]]:
    """Return what JSON sets besides `FIELDS` and `STATE_FIELDS`; empty values set nothing."""
    if isinstance(content, list):
        return collect(map(find_fields, content))
    found = []
    for name, value in content.items() if isinstance(content, dict) else ():
        if name == "state" and isinstance(value, dict):
            found.append(find_state_fields(value))
        elif name == PROCESS_FIELD and isinstance(value, str) and value.isdecimal():
            continue
        elif value and name not in FIELDS:
            found.append({name: [value]})
        elif name not in OF_USERS:
            found.append(find_fields(value))
    return collect(found)


def find_state_fields(state: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return what a state sets besides `STATE_FIELDS`."""
    return {f"state.{n}": [v] for n, v in state.items() if v and n not in STATE_FIELDS}


def find_state_of_event(event: Any) -> dict[str, list[Any]]:
    """Return what an event sets of the state of a task run, which the server takes from it."""
    payload = event.get("payload") if isinstance(event, dict) else None
    if not isinstance(payload, dict):
        return {}
    run = payload.get("task_run")
    states = [payload.get("validated_state"), run.get("state") if isinstance(run, dict) else None]
    return collect(find_state_fields(state) for state in states if isinstance(state, dict))


def collect(found: Iterable[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Return values by name, of several."""
    values: dict[str, list[Any]] = {}
    for each in found:
        for name, some in each.items():
            values.setdefault(name, []).extend(some)
    return values


class StartLockMiddleware:
    """Has one server at a time start on a database: the first one makes it, and two that did so at
    once would both fail to.
    """

    def __init__(self, app: ASGIApp, lock: Path):
        self.app, self.lock = app, lock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        with ExitStack() as held:
            await asyncio.to_thread(held.enter_context, exclusive_lock(self.lock))

            async def send_and_release(message: Message) -> None:
                if message["type"].startswith("lifespan.startup."):  # complete, or failed
                    held.close()
                await send(message)

            await self.app(scope, receive, send_and_release)


class WebSocketOriginMiddleware:
    """Refuses a WebSocket handshake whose Origin is present and not the server's own.

    Browsers always send an Origin, workers do not. The server's own are the name under which it is
    asked and PREFECT_SERVER_CORS_ALLOWED_ORIGINS.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str]):
        self.app = app
        self.origins = {origin.rstrip("/") for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not self.is_own(Headers(scope=scope)):
            await receive()  # the handshake; closed before it is accepted, it is answered with 403
            await send({"type": "websocket.close", "code": WS_1008_POLICY_VIOLATION})
            return
        await self.app(scope, receive, send)

    def is_own(self, headers: Headers) -> bool:
        """Return whether a handshake comes from the server's own pages, or from no page at all."""
        origins = headers.getlist("origin")
        return all(
            origin in self.origins or urlsplit(origin).netloc == headers.get("host")
            for origin in origins
        )


class ContentPolicyMiddleware:
    """Has browsers load and send what the server's pages want only from and to these origins, at
    which the API answers.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str]):
        self.app = app
        sockets = [re.sub("^http", "ws", origin) for origin in origins]
        rules = [
            "default-src 'self'",
            " ".join(["connect-src 'self' data: blob:", *origins, *sockets]),
            "font-src 'self' data:",
            "img-src 'self' data: blob:",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "worker-src 'self' blob:",
            "base-uri 'self'",
            "form-action 'self'",
            "frame-ancestors 'self'",
        ]
        self.policy = "; ".join(rules)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Content-Security-Policy"] = self.policy
            await send(message)

        await self.app(scope, receive, send_with_policy)


def create_app() -> ASGIApp:
    """Return Prefect's application behind the guards; its own services reach it directly."""
    from prefect.server.api import server

    admin = os.environ.get(ADMIN_VARIABLE, "")
    app = guard_app(server.create_app(), list_host_names(), read_allowed_origins(), admin)
    return StartLockMiddleware(app, Path(PREFECT_HOME.value(), "start.lock"))


def guard_app(app: ASGIApp, names: list[str], origins: list[str], admin: str = "") -> ASGIApp:
    """Return an application that answers under these names and to pages of these origins, and
    takes programs from who knows the administrator's word alone.
    """
    guarded = ContentPolicyMiddleware(ChangeMiddleware(app, admin), origins)
    return TrustedHostMiddleware(
        WebSocketOriginMiddleware(guarded, origins), names, www_redirect=False
    )


def read_allowed_origins() -> list[str]:
    """Return the origins of PREFECT_SERVER_CORS_ALLOWED_ORIGINS; Prefect's default `*` is none."""
    origins = PREFECT_SERVER_CORS_ALLOWED_ORIGINS.value() or ""
    return [origin.strip() for origin in origins.split(",") if origin.strip() not in ("", "*")]


def list_host_names() -> list[str]:
    """Return the names under which the server answers."""
    names = [name.strip() for name in os.environ.get(HOSTS_VARIABLE, "").split(",")]
    return [*LOCAL_NAMES, *filter(None, names)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Prefect's server behind our guards")
    parser.add_argument("--host", default=LOCAL_NAMES[0])
    parser.add_argument("--port", type=int, default=4200)
    address = parser.parse_args()
    uvicorn.run(
        create_app(),
        host=address.host,
        port=address.port,
        log_config=None,  # Prefect's: PREFECT_SERVER_LOGGING_LEVEL
        timeout_keep_alive=5,
    )
