"""Prefect's own application, for `uvicorn --factory`. Its transactions begin DEFERRED: SQLite
refuses one that writes after another did, and a click in the UI is lost. IMMEDIATE ones wait.
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
