"""Prefect's own application, for `uvicorn --factory`; its writes to SQLite wait for each other.

Prefect begins its transactions DEFERRED: one that reads and then writes fails at once, and its
client gets 503, when another connection wrote in between. No timeout changes that, and its UI does
not repeat a click. Transactions that begin IMMEDIATE wait.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from prefect.server.api.server import create_app
from prefect.server.database.configurations import AioSqliteConfiguration

_begin = AioSqliteConfiguration.begin_transaction


@asynccontextmanager
async def begin_immediate(
    self: AioSqliteConfiguration, session: Any, with_for_update: bool = False
) -> AsyncIterator[Any]:
    """Begin a transaction that has the right to write from its beginning."""
    async with _begin(self, session, with_for_update=True) as transaction:
        yield transaction


def create_server(**options: Any) -> FastAPI:
    """Return the application of a server that stays, with its UI."""
    AioSqliteConfiguration.begin_transaction = begin_immediate  # type: ignore[method-assign]
    return create_app(final=True, **options)


def create_run_server() -> FastAPI:
    """Return that of a server for one run: without UI, scheduler and search for late runs."""
    return create_server(ephemeral=True)
