"""Gives the Prefect database of a new store its tables, as a copy of an earlier one's.

Prefect makes them by all the migrations there have ever been, nearly half of a server's first
start. One version of Prefect makes the same tables each time, so the first new store leaves an
empty database in the user's cache, and the next ones copy it. Prefect still looks what is missing,
as at every start. Without a copy that can be read, Prefect makes the tables.
"""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import prefect
import sqlalchemy as sa
from prefect.server.database import dependencies
from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.settings import get_current_settings

from beam_jobs.job.files import atomic_path

NO_COPY = (OSError, RuntimeError, sqlite3.Error)
"""What a cache raises that is not there, full, damaged, or of a user without a home (RuntimeError,
by Path.home).
"""


async def make_tables() -> None:
    """Make the tables of the server's SQLite database, if its file does not exist yet.

    Leaves alone other databases, and one that the user migrates by hand.
    """
    db = dependencies.provide_database_interface()
    config = db.database_config
    if not isinstance(config, AioSqliteConfiguration) or config.is_inmemory():
        return
    name = sa.make_url(config.connection_url).database
    if not name or not get_current_settings().server.database.migrate_on_start:
        return
    database = Path(name).absolute()
    if database.exists():
        return
    with suppress(*NO_COPY):
        copy_database(find_copy(), database)
        return
    await db.create_db()
    with suppress(*NO_COPY):
        copy_database(database, find_copy())


def find_copy() -> Path:
    """Return the path of this user's empty database of this version of Prefect."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = given if given.is_absolute() else Path.home() / ".cache"
    return cache / "amazon-electra" / f"prefect-{prefect.__version__}.db"


def copy_database(source: Path, target: Path) -> None:
    """Copy an SQLite database with Prefect's tables; the target is whole or is not touched.

    Raises sqlite3.Error or OSError for a source that is not there, is damaged or has no tables.
    """
    with (
        atomic_path(target) as part,
        closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as found,
        closing(sqlite3.connect(part)) as made,
    ):
        found.backup(made)
        made.execute("PRAGMA journal_mode=DELETE")  # one file, also while it is read
        made.execute("SELECT version_num FROM alembic_version")
        if made.execute("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError(f"{source} is damaged")
