"""Prefect's own application behind five guards.

`python -m flows.servers.prefect_application --host HOST --port PORT` serves it.

- It answers under its own names alone. A page that makes its own name stand for this machine's
  address would else pass for the UI, and start runs.
- It refuses WebSockets to the pages of other origins. Neither the CSRF token nor CORS covers them,
  so any page in a browser on this machine could else send events and read the history.
- Its pages may load and send nothing elsewhere: Prefect's newer UI brings a package that reports to
  a third party, and the Markdown of an artifact may name an image of any server.
- What a worker or the serving process runs (pull steps, entrypoints, job variables, templates of
  pools) is set by an administrator alone, who knows AMAZON_ELECTRA_PREFECT_ADMIN: everybody else
  may start runs of the deployments that there are, but no program of their own.
- A change that the database could not take, since another connection was writing, is tried again.
  Prefect answers it with 503, which its clients repeat and its UI does not: a click on Submit or
  Resume would be lost.
"""

import argparse
import asyncio
import json
import os
import random
import re
import secrets
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import httpx
import uvicorn
from prefect.settings import PREFECT_SERVER_CORS_ALLOWED_ORIGINS
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.status import HTTP_503_SERVICE_UNAVAILABLE, WS_1008_POLICY_VIOLATION
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.servers.settings import ADMIN_HEADER, ADMIN_VARIABLE

LOCAL_NAMES = ["127.0.0.1", "localhost"]
HOSTS_VARIABLE = "AMAZON_ELECTRA_PREFECT_HOSTS"
"""Environment variable with further names, separated by commas, under which browsers and workers
reach the server.
"""
ATTEMPTS = 12
"""Of a change that meets 503; the pauses between them add up to half a minute at most."""
MAX_PAUSE_SECONDS = 4.0
WHAT_RUNS = {
    *("pull_steps", "entrypoint", "path", "job_variables", "base_job_template"),
    *("storage_document_id", "infrastructure_document_id"),
}
"""Fields of deployments, runs, schedules, automations and pools that decide which program runs."""
OF_USERS = {"parameters", "parameter_openapi_schema", "context", "labels", "state"}
"""Fields whose content has names of the users' own."""


class ChangeMiddleware:
    """Refuses a change of what runs to all but an administrator, and repeats a change that is
    answered with 503: nothing of a refused transaction was written.
    """

    def __init__(self, app: ASGIApp, admin: str = ""):
        """`admin` is the administrator's word; empty: there is none."""
        self.app, self.admin = app, admin.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        if why := await self.explain_refusal(scope, body):
            await JSONResponse({"detail": why}, 403)(scope, receive, send)
            return
        for attempt in range(1, ATTEMPTS + 1):
            is_last = attempt == ATTEMPTS
            if not await self.forward(scope, body, receive, send, is_last):
                return
            await asyncio.sleep(random.uniform(0, min(0.05 * 2**attempt, MAX_PAUSE_SECONDS)))

    async def explain_refusal(self, scope: Scope, body: bytes) -> str:
        """Return why a change is an administrator's, or an empty text.

        The forms of the UI send the job variables of a deployment back as they are; that is none.
        """
        headers = Headers(scope=scope)
        given = headers.get(ADMIN_HEADER, "").encode()
        if self.admin and secrets.compare_digest(given, self.admin):
            return ""
        parts = scope["path"].strip("/").split("/")
        try:
            found = {} if "admin" in parts else find_fields(json.loads(body or b"{}"))
        except RecursionError:
            return "the request is nested too deeply"
        except ValueError:  # no JSON: Prefect takes nothing from it
            return ""
        if found.get("job_variables") and "deployments" in parts[:-1]:
            place = "/".join(parts[: parts.index("deployments") + 2])
            names = {"authorization", "host"} & set(headers)
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as inner:
                there = await inner.get(f"/{place}", headers={n: headers[n] for n in names})
            if there.is_success and found["job_variables"] == [there.json().get("job_variables")]:
                del found["job_variables"]
        if found or "admin" in parts:
            what = ", ".join(sorted(found)) or "the server's own settings"
            return f"{what}: only an administrator may set this ({ADMIN_VARIABLE})"
        return ""

    async def forward(
        self, scope: Scope, body: bytes, receive: Receive, send: Send, is_last: bool
    ) -> bool:
        """Pass the request on, and its answer back; return whether that was 503 and is dropped."""
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
            await self.app(dict(scope), receive_again, send_unless_refused)
        except Exception:
            if not refused:  # Starlette raises the error once more that it has answered
                raise
        return refused


def find_fields(content: Any) -> dict[str, list[Any]]:
    """Return what JSON sets of `WHAT_RUNS`, by name, at any depth; empty values set nothing."""
    found: dict[str, list[Any]] = {}
    items = content.items() if isinstance(content, dict) else ()
    for name, value in items:
        if name in WHAT_RUNS and value:
            found.setdefault(name, []).append(value)
    inner = [v for n, v in items if n not in WHAT_RUNS | OF_USERS]
    for value in content if isinstance(content, list) else inner:
        for name, values in find_fields(value).items():
            found.setdefault(name, []).extend(values)
    return found


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
    return guard_app(server.create_app(), list_host_names(), read_allowed_origins(), admin)


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
        log_level="warning",
        timeout_keep_alive=5,
    )
