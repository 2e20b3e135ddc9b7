"""Prefect's own server, for requests to its own names alone, with SQLite transactions that begin with the write lock.

After a time away it is patient with runs, which could give no signs of life.

A page that gets its own name to stand for this machine's address would else pass for the UI, and start runs.

Prefect begins most of them DEFERRED: they read first, and if another connection commits before they write, SQLite can't
let them go on and refuses at once ("database is locked", no time-out helps). The API then answers 503; clients retry,
the UI does not: a click on Submit or Resume is lost. Begun IMMEDIATE they wait for each other, as Prefect's own
`with_for_update` transactions do (prefect/server/models/deployments.py, `mark_deployments_ready`).
"""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from prefect.server.api import server
from prefect.server.database import dependencies
from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration
from prefect.server.utilities.database import get_dialect
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction
from starlette.middleware.trustedhost import TrustedHostMiddleware

from flows.automations import LOST_RUNS, LOST_SECONDS

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]

LOCAL = ["127.0.0.1", "localhost"]
HOSTS = "AMAZON_ELECTRA_PREFECT_HOSTS"
"""Environment variable with further names, by commas, under which browsers and workers reach the server."""


class ImmediateSqlite(AioSqliteConfiguration):
    @asynccontextmanager
    async def begin_transaction(
        self, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncGenerator[AsyncSessionTransaction]:
        async with session.begin() as transaction:
            mode = SQLITE_BEGIN_MODE.set("IMMEDIATE")
            try:
                await session.connection()
            finally:
                # Sessions opened inside, which only read, must not ask for the lock that this one has.
                SQLITE_BEGIN_MODE.reset(mode)
            yield transaction


def create_app() -> TrustedHostMiddleware:
    """Prefect's application behind a check of the name it is asked under; its own services ask it directly."""
    url = PREFECT_API_DATABASE_CONNECTION_URL.value()
    if get_dialect(url).name == "sqlite":
        dependencies.set_database_config(ImmediateSqlite(connection_url=url))
    named = [name.strip() for name in os.environ.get(HOSTS, "").split(",")]
    app = server.create_app()
    app.router.lifespan_context = beginning_with_patience(app.router.lifespan_context)
    return TrustedHostMiddleware(app, [*LOCAL, *filter(None, named)], www_redirect=False)


def beginning_with_patience(lifespan: Lifespan) -> Lifespan:
    """A server that was away took no signs of life: before it looks for lost runs, each gets its time anew.

    The time by which a run must have given a sign is in the database, and what Prefect does first is to look at it.
    """

    @asynccontextmanager
    async def patient(app: Any) -> AsyncGenerator[Any]:
        with suppress(OperationalError, ProgrammingError):  # a new database, which has no tables yet
            await wait_for_runs_anew()
        async with lifespan(app) as state:
            yield state

    return patient


async def wait_for_runs_anew() -> None:
    """Every run that is waited for may give its next sign of life from now on."""
    db = dependencies.provide_database_interface()
    ours = sa.select(db.Automation.id).where(db.Automation.name == LOST_RUNS)
    waited_for = sa.update(db.AutomationBucket).where(db.AutomationBucket.automation_id.in_(ours))
    async with db.session_context(begin_transaction=True) as session:
        await session.execute(waited_for.values(end=datetime.now(UTC) + timedelta(seconds=LOST_SECONDS)))
