"""A new store's Prefect database begins as a copy of the tables of an earlier one."""

import sqlite3
from contextlib import closing

import pytest

from flows.servers import prefect_tables
from flows.servers.health import find_free_port, is_healthy, wait_until_healthy
from flows.servers.prefect_server import PrefectServer, start_prefect_server


def read_tables(file):
    with closing(sqlite3.connect(file)) as database:
        return set(database.execute("SELECT type, name, sql FROM sqlite_master"))


def count_rows(file, table):
    with closing(sqlite3.connect(file)) as database:
        return database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def start_server_once(store):
    """Start a Prefect server on a store, as `up` does, and end it; return the store's database."""
    port = find_free_port()
    server = start_prefect_server(store, port)
    wait_until_healthy("it", server, lambda: is_healthy(f"http://127.0.0.1:{port}/api/health"))
    server.end()
    return store / "prefect" / "prefect.db"


def test_the_first_store_leaves_empty_tables_for_the_next_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copy = prefect_tables.find_copy()
    copy.parent.mkdir()
    copy.write_bytes(b"not a database" * 100)
    first = start_server_once(tmp_path / "first")
    tables = read_tables(first)
    assert read_tables(copy) == tables
    assert len(tables) > 50
    assert count_rows(first, "block_type") > 0
    for table in ("block_type", "configuration", "csrf_token", "flow"):
        assert count_rows(copy, table) == 0
    with closing(sqlite3.connect(copy)) as database:  # a mark: the next store has it too
        database.execute("CREATE TABLE mark (x)")
    second = start_server_once(tmp_path / "second")
    assert read_tables(second) == read_tables(copy) > tables
    assert [p.name for p in copy.parent.iterdir()] == [copy.name]


def test_a_server_that_stays_registers_the_blocks_that_a_run_does_not_need(tmp_path):
    of_a_run = PrefectServer(tmp_path, find_free_port())
    of_a_run.wait()
    of_a_run.process.end()
    assert count_rows(tmp_path / "prefect" / "prefect.db", "block_type") == 0
    assert count_rows(start_server_once(tmp_path), "block_type") > 0


@pytest.mark.parametrize("damage", ["missing", "cut", "zeros", "without tables"])
def test_a_copy_that_is_damaged_is_none(tmp_path, damage):
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    with closing(sqlite3.connect(source)) as database:
        database.execute("CREATE TABLE alembic_version (version_num)")
        database.executemany("INSERT INTO alembic_version VALUES (?)", [("x" * 9,)] * 2000)
        database.commit()
    prefect_tables.copy_database(source, target)
    assert count_rows(target, "alembic_version") == 2000
    target.unlink()
    content = source.read_bytes()
    if damage == "missing":
        source.unlink()
    elif damage == "cut":
        source.write_bytes(content[: len(content) // 2])
    elif damage == "zeros":
        source.write_bytes(content[:8192] + bytes(len(content) - 8192))
    else:
        source.write_bytes(b"")
    with pytest.raises((sqlite3.Error, OSError)):
        prefect_tables.copy_database(source, target)
    assert [p for p in tmp_path.iterdir() if p != source] == []
