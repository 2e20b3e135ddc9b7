"""Lists the watched places and starts the run of all files there, once for each set of files.

A new dump is one more file. The server returns the run of an idempotency key if it is asked for it
a second time, so two watchers start one run, and one that dies starts nothing twice.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.deployments import run_deployment
from pydantic import Field

from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.flows.configuration.addresses import Address
from amazon_electra.flows.configuration.form import STORE
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps.arrivals import NewFile, Scan, find_arrivals
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.servers.access import restrict_store
from amazon_electra.flows.store.store import Store

INBOX = "inbox/*"
"""Of the store, and there as soon as somebody looks."""


class Watch(Settings):
    """Where new dumps appear, and when one is taken for whole."""

    places: list[Address] = Field(
        default=[INBOX],
        min_length=1,
        description="Globs, folders or object-store prefixes (gs://bucket/reviews/*) to look "
        "into; relative ones are below the store",
    )
    settle_seconds: float = Field(
        default=900.0,
        ge=0,
        le=86_400,
        description="Leave a file that changed more recently: it may still be being written, and "
        "uploads stall for minutes. Objects of a bucket are whole",
    )


class WatchForm(Settings):
    """What the watcher is asked to do."""

    watch: Watch = Watch()
    store: str = STORE


DEPLOYMENT = "domain-adaptation/domain-adaptation"


class NotStarted(RuntimeError):
    """The run could not be started, or places not be reached; the next look tries again."""


@flow(name="watch-dumps", flow_run_name="watch-dumps")
@take_fields(WatchForm)
def watch_dumps(**given: Any) -> list[str]:
    """Look for new dumps and start the run of all files that lie there."""
    form = WatchForm(**given)
    return look_for_dumps(Store(form.store), form.watch)


def look_for_dumps(store: Store, watch: Watch) -> list[str]:
    """Start the run of all files and return their paths; nothing where they have one already.

    Raises NotStarted where a place cannot be reached, or the run not be started.
    """
    restrict_store(store.root)
    if INBOX in watch.places:
        (store.root / INBOX).parent.mkdir(parents=True, exist_ok=True)
    found = look_at_places(store, watch)
    if found.unreachable:  # what lies there belongs to the run
        raise NotStarted("; ".join(found.unreachable))
    key = compute_idempotency_key(store, found.whole)
    with get_client(sync_client=True) as client:
        wanted = FlowRunFilter.model_validate({"idempotency_key": {"any_": [key]}})
        is_known = bool(client.read_flow_runs(flow_run_filter=wanted, limit=1))
        given = client.read_deployment_by_name(DEPLOYMENT).parameters
    paths = [file.path for file in found.whole]
    find_run_logger().info("found %d files%s", len(paths), ", no new one" if is_known else "")
    if not paths or is_known:
        return []
    try:
        run: Any = run_deployment(
            DEPLOYMENT,
            parameters={"dump": {**given.get("dump", {}), "paths": paths}, "store": store.address},
            idempotency_key=key,
            timeout=0,
            as_subflow=False,
            tags=["new-dump"],
        )
    except Exception as error:
        raise NotStarted(" ".join(str(error).split()) or type(error).__name__) from error
    find_run_logger().info("started %s", run.name)
    return paths


def look_at_places(store: Store, watch: Watch) -> Scan:
    """Return what lies in the places, and log what is not taken. Relative places lie in the
    store.
    """

    def resolve(place: str) -> str:
        return place if is_remote(place) else str(store.root / Path(place).expanduser())

    places, log = [resolve(place) for place in watch.places], find_run_logger()
    found = find_arrivals(places, watch.settle_seconds, time.time())
    for place in found.missing:
        log.warning("watch.places: there is no %s; relative places lie in the store", place)
    for path, why in found.left_alone.items():
        log.info("left alone: %s: %s", path, why)
    return found


def compute_idempotency_key(store: Store, files: Sequence[NewFile]) -> str:
    """Return the key of a run: two stores on one server have a run each of the same files."""
    identity = json.dumps([store.address, sorted(file.key for file in files)])
    return f"dump-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
