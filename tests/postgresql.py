"""Debian's PostgreSQL for tests, as its own user: needs root."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from amazon_electra.flows.servers.access import find_free_port

INITDB = shutil.which("initdb") or shutil.which("/usr/lib/postgresql/15/bin/initdb")
IS_HERE = bool(INITDB) and os.geteuid() == 0


@contextmanager
def serve_postgresql() -> Iterator[tuple[list[str], int]]:
    """An empty server: the words of psql before a database is named, and the port."""
    assert INITDB
    binaries, port = os.path.dirname(os.path.realpath(INITDB)), find_free_port()
    folder = tempfile.mkdtemp(prefix="postgresql-")  # its user may not enter pytest's
    shutil.chown(folder, "postgres", "postgres")
    as_postgres = ["runuser", "-u", "postgres", "--"]
    subprocess.run(
        [*as_postgres, f"{binaries}/initdb", "-D", folder, "-A", "trust"], check=True, cwd="/"
    )
    options = (
        f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    )
    control = [*as_postgres, f"{binaries}/pg_ctl", "-D", folder, "-w"]
    subprocess.run([*control, "-o", options, "-l", f"{folder}/log", "start"], check=True, cwd="/")
    try:
        yield ["psql", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres"], port
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], cwd="/")
        shutil.rmtree(folder)
