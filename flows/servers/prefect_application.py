"""Prefect's own server, changed in its names, WebSockets, pages, SQLite, tables and start.

- It answers under its own names alone. A page that makes its own name stand for this machine's
  address would else pass for the UI, and start runs.
- It refuses WebSockets to the pages of other origins. Neither the CSRF token nor CORS covers them,
  so any page in a browser on this machine could else send events and read the history.
- Its pages may load and send nothing elsewhere: Prefect's newer UI brings a package that reports to
  a third party, and the Markdown of an artifact may name an image of any server.
- SQLite transactions begin with the write lock. Prefect begins most of them DEFERRED: they read
  first, and if another connection commits before they write, SQLite can't let them go on and
  refuses at once ("database is locked", no time-out helps). The API then answers 503; clients
  retry, the UI does not: a click on Submit or Resume is lost. Begun IMMEDIATE they wait for each
  other, as Prefect's own `with_for_update` transactions do
  (prefect/server/models/deployments.py, `mark_deployments_ready`).
- A new store's database gets its tables as a copy of an earlier one's (prefect_tables.py).
- After a time away it gives runs, which could send no heartbeat, their full time anew.
"""

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa
from prefect.server.api import server
from prefect.server.database import dependencies
from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration
from prefect.server.utilities.database import get_dialect
from prefect.settings import (
    PREFECT_API_DATABASE_CONNECTION_URL,
    PREFECT_SERVER_CORS_ALLOWED_ORIGINS,
)
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.status import WS_1008_POLICY_VIOLATION
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.servers.prefect_tables import make_tables
from flows.servers.settings import LOST_RUNS, LOST_SECONDS

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]

LOCAL_NAMES = ["127.0.0.1", "localhost"]
HOSTS_VARIABLE = "AMAZON_ELECTRA_PREFECT_HOSTS"
"""Environment variable with further names, separated by commas, under which browsers and workers
reach the server.
"""


class ImmediateSqlite(AioSqliteConfiguration):
    """Prefect's SQLite configuration with transactions that begin as writes."""

    @asynccontextmanager
    async def begin_transaction(
        self, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncGenerator[AsyncSessionTransaction]:
        async with session.begin() as transaction:
            mode = SQLITE_BEGIN_MODE.set("IMMEDIATE")
            try:
                await session.connection()
            finally:
                # Sessions opened inside, which only read, must not ask for the lock that this one
                # has.
                SQLITE_BEGIN_MODE.reset(mode)
            yield transaction


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
    """Has browsers load and send what the server's pages want only from and to these origins."""

    def __init__(self, app: ASGIApp, origins: Iterable[str]):
        self.app = app
        self.policy = build_content_policy(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Content-Security-Policy"] = self.policy
            await send(message)

        await self.app(scope, receive, send_with_policy)


def build_content_policy(origins: Iterable[str]) -> str:
    """Return the Content-Security-Policy of pages whose API answers at the origins."""
    sockets = [re.sub("^http", "ws", origin) for origin in origins]
    return "; ".join(
        [
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
    )


def create_app() -> TrustedHostMiddleware:
    """Return Prefect's application behind checks of the name and the origin of a request.

    Prefect's own services reach the application directly.
    """
    url = PREFECT_API_DATABASE_CONNECTION_URL.value()
    if get_dialect(url).name == "sqlite":
        dependencies.set_database_config(ImmediateSqlite(connection_url=url))
    app = server.create_app()
    app.router.lifespan_context = prepare_database_at_start(app.router.lifespan_context)
    origins = read_allowed_origins()
    guarded = WebSocketOriginMiddleware(ContentPolicyMiddleware(app, origins), origins)
    return TrustedHostMiddleware(guarded, list_host_names(), www_redirect=False)


def read_allowed_origins() -> list[str]:
    """Return the origins of PREFECT_SERVER_CORS_ALLOWED_ORIGINS; Prefect's default `*` is none."""
    origins = PREFECT_SERVER_CORS_ALLOWED_ORIGINS.value() or ""
    return [origin.strip() for origin in origins.split(",") if origin.strip() not in ("", "*")]


def list_host_names() -> list[str]:
    """Return the names under which the server answers."""
    names = [name.strip() for name in os.environ.get(HOSTS_VARIABLE, "").split(",")]
    return [*LOCAL_NAMES, *filter(None, names)]


def prepare_database_at_start(lifespan: Lifespan) -> Lifespan:
    """Return a lifespan that first makes a new database's tables, or gives each run in an old one
    its time anew before the server looks for lost runs.

    The deadline for a run's next heartbeat is in the database, and Prefect reads it first of all.
    """

    @asynccontextmanager
    async def prepare_then_run(app: Any) -> AsyncGenerator[Any]:
        await make_tables()
        # A new database of PostgreSQL has no tables yet.
        with suppress(OperationalError, ProgrammingError):
            await renew_heartbeat_deadlines()
        async with lifespan(app) as state:
            yield state

    return prepare_then_run


async def renew_heartbeat_deadlines() -> None:
    """Let every run that is waited for send its next heartbeat from now on."""
    db = dependencies.provide_database_interface()
    ours = sa.select(db.Automation.id).where(db.Automation.name == LOST_RUNS)
    buckets = sa.update(db.AutomationBucket).where(db.AutomationBucket.automation_id.in_(ours))
    deadline = datetime.now(UTC) + timedelta(seconds=LOST_SECONDS)
    async with db.session_context(begin_transaction=True) as session:
        await session.execute(buckets.values(end=deadline))
