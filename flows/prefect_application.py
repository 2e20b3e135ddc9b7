"""Prefect's own server, with SQLite transactions that take the write lock when they begin.

Prefect begins most of them DEFERRED: they read first, and if another connection commits before they write, SQLite can't
let them go on and refuses at once ("database is locked", no time-out helps). The API then answers 503; clients retry,
the UI does not: a click on Submit or Resume is lost. Begun IMMEDIATE they wait for each other, as Prefect's own
`with_for_update` transactions do (prefect/server/models/deployments.py, `mark_deployments_ready`).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prefect.server.api import server
from prefect.server.database import dependencies
from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration
from prefect.server.utilities.database import get_dialect
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction


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


def create_app() -> FastAPI:
    url = PREFECT_API_DATABASE_CONNECTION_URL.value()
    if get_dialect(url).name == "sqlite":
        dependencies.set_database_config(ImmediateSqlite(connection_url=url))
    return server.create_app()
