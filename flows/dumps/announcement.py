"""Tells the watcher of a store that a dump is whole: it looks at once and takes that dump."""

import os
from pathlib import Path

from beam_jobs.job import storage
from beam_jobs.job.errors import UserError
from flows.servers.prefect_server import find_running_servers
from flows.servers.settings import DUMP_EVENT, build_client_environment


def announce_dump(store: Path, dump: str) -> str:
    """Send the event to the Prefect server; return the address that it names.

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
    send_event(address)
    return address


def send_event(address: str) -> None:
    """Send the event that has the watcher look; raise an error unless the server took it."""
    from prefect.client.orchestration import get_client
    from prefect.events import Event, Resource

    event = Event(
        event=DUMP_EVENT,
        resource=Resource({"prefect.resource.id": "reviews.inbox"}),
        payload={"dump": address},
    )
    with get_client(sync_client=True) as client:
        client._client.post("/events", json=[event.model_dump(mode="json")]).raise_for_status()
