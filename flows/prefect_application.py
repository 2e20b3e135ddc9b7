"""Prefect's own server, for requests to its own names alone, with SQLite transactions that begin with the write lock.

A page that gets its own name to stand for this machine's address would else pass for the UI, and start runs.

Prefect begins most of them DEFERRED: they read first, and if another connection commits before they write, SQLite can't
let them go on and refuses at once ("database is locked", no time-out helps). The API then answers 503; clients retry,
the UI does not: a click on Submit or Resume is lost. Begun IMMEDIATE they wait for each other, as Prefect's own
`with_for_update` transactions do (prefect/server/models/deployments.py, `mark_deployments_ready`).
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from prefect.server.api import server
from prefect.server.database import dependencies
from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration
from prefect.server.utilities.database import get_dialect
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction
from starlette.middleware.trustedhost import TrustedHostMiddleware

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
    return TrustedHostMiddleware(server.create_app(), [*LOCAL, *filter(None, named)], www_redirect=False)
