"""Tells the watcher of a store that a dump is whole: it looks at once and takes that dump."""

import os
from pathlib import Path

from beam_jobs.core import storage
from beam_jobs.core.errors import UserError
from flows.servers.prefect_server import find_running_servers
from flows.servers.settings import build_client_environment

WATCHER = "watch-dumps/watch-dumps"


def announce_dump(store: Path, dump: str) -> str:
    """Start a run of the watcher that takes this dump; return the dump's address.

    The server is the one of PREFECT_API_URL, else the one that is up for the store.
    """
    address = dump if storage.is_remote(dump) else str(Path(dump).expanduser().resolve())
    if not storage.is_remote(address) and not os.path.isfile(address):
        raise UserError(f"announce {dump}: no such file")
    url = os.environ.get("PREFECT_API_URL")
    if not url and (servers := find_running_servers(store)):
        url = f"{servers['prefect']}/api"
    if not url:
        raise UserError(
            f"--store {store}: no server is up that could hear of {dump}; "
            "`amazon-electra up` starts one, or set PREFECT_API_URL"
        )
    os.environ.update(build_client_environment(store, url))
    from prefect.deployments import run_deployment  # reads the environment when it is imported
    from prefect.exceptions import ObjectNotFound

    try:
        run_deployment(WATCHER, parameters={"announced": address}, timeout=0, as_subflow=False)
    except ObjectNotFound:
        raise UserError(
            f"announce {dump}: the Prefect server at {url} has no deployment {WATCHER}; "
            "`amazon-electra up` makes it, elsewhere deploy/deployments.sh"
        ) from None
    return address
