"""Finds new dumps and starts one run for each, once.

Each look lists the watched places and asks the Prefect server which of the dumps have a run
already, by idempotency keys: the server returns the run of a key if it is asked for it a second
time. So two watchers start one run, and one that dies between two steps starts nothing twice. A
dump whose run cannot be started does not keep the others waiting; the next look tries again.

Dumps that are added to a model are added one after the other: the next addition starts when no
other one of the store is running or scheduled. Its end has the watcher look again
(flows/ui/prefect.yaml).
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from pydantic import Field

from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.beam_jobs.core.storage import is_remote
from amazon_electra.flows import add_dump
from amazon_electra.flows.configuration.addresses import Address
from amazon_electra.flows.configuration.form import STORE, Addition
from amazon_electra.flows.configuration.form_tools import take_fields
from amazon_electra.flows.dumps.arrivals import NewFile, Scan, find_arrivals
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.runs.missed_runs import catch_up_once
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
        "uploads stall for minutes. An announced file is taken at once",
    )
    each: Literal["whole run", "added"] = Field(
        default="whole run",
        description="whole run: train a model for each dump, with the parameters of the "
        "deployment domain-adaptation; added: add one dump after the other, with the parameters "
        "of add-dump, to the newest model that goes back to its increment.base",
    )


class WatchForm(Settings):
    """What the watcher is asked to do."""

    watch: Watch = Watch()
    announced: str = Field(
        default="",
        description="A complete dump in one of the places, as an event reports it; usually left "
        "empty. It is taken immediately. A relative path is below the store.",
    )
    store: str = STORE


DEPLOYMENTS = {"whole run": "domain-adaptation/domain-adaptation", "added": "add-dump/add-dump"}
UNFINISHED = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
"""States of a run that others wait for; of one that waits for an approval the model is made."""
KEYS_AT_ONCE = 200
"""Prefect's server returns at most so many runs at a time."""


class NotStarted(RuntimeError):
    """Runs could not be started, or places not be reached; the next look tries again."""


@flow(name="watch-dumps", flow_run_name="watch-dumps")
@catch_up_once
@take_fields(WatchForm)
def watch_dumps(**given: Any) -> list[str]:
    """Look for new dumps and start one run for each, once."""
    form = WatchForm(**given)
    return look_for_dumps(Store(form.store), form.watch, form.announced)


def look_for_dumps(store: Store, watch: Watch, announced: str = "") -> list[str]:
    """Start what is new and return its paths; raise NotStarted at the end if some failed."""
    restrict_store(store.root)
    if INBOX in watch.places:
        (store.root / INBOX).parent.mkdir(parents=True, exist_ok=True)
    found = look_at_places(store, watch, announced)
    deployment = DEPLOYMENTS[watch.each]
    started, failed = list[str](), dict[str, str]()
    with get_client(sync_client=True) as client:
        given = client.read_deployment_by_name(deployment).parameters
        new = find_new(client, store, found.whole)
        find_run_logger().info("found %d dumps, %d of them new", len(found.whole), len(new))
        running = find_running_addition(client, store) if watch.each == "added" and new else None
    if running:
        find_run_logger().info("the next dump is added when %s has finished", running.name)
        new = []
    for arrival in new:
        try:
            start_run(store, deployment, arrival, fill_form(given, arrival.path, store, watch))
        except Exception as error:  # what goes wrong with one must not keep the others waiting
            failed[arrival.path] = " ".join(str(error).split()) or type(error).__name__
            find_run_logger().error(
                "%s: its run could not be started: %s", arrival.path, failed[arrival.path]
            )
            continue
        started.append(arrival.path)
        if watch.each == "added":
            break
    reasons = [f"{path}: {why}" for path, why in failed.items()]
    if failed:
        runs = format_count(len(failed), "run")
        reasons[0] = f"{runs} could not be started, the next look tries again: {reasons[0]}"
    if reasons := [*found.unreachable, *reasons]:
        raise NotStarted("; ".join(reasons))
    return started


def look_at_places(store: Store, watch: Watch, announced: str) -> Scan:
    """Return what lies in the places, and log what is not taken. Relative places lie in the
    store.
    """

    def resolve(place: str) -> str:
        return place if is_remote(place) else str(store.root / Path(place).expanduser())

    places, at_once = [resolve(place) for place in watch.places], announced and resolve(announced)
    log, found = (
        find_run_logger(),
        find_arrivals(places, watch.settle_seconds, time.time(), at_once),
    )
    for place in found.missing:
        log.warning("watch.places: there is no %s; relative places lie in the store", place)
    if found.not_taken:
        log.warning("announced, but not taken: %s: %s", announced, found.not_taken)
    for path, why in found.left_alone.items():
        log.info("left alone: %s: %s", path, why)
    return found


def find_new(client: SyncPrefectClient, store: Store, dumps: Sequence[NewFile]) -> list[NewFile]:
    """Return the dumps that have no run of either kind yet, in their order."""
    keys = {compute_idempotency_key(store, one): one for one in dumps}
    known = set[str | None]()
    for start in range(0, len(keys), KEYS_AT_ONCE):
        some = {"any_": list(keys)[start : start + KEYS_AT_ONCE]}
        wanted = FlowRunFilter.model_validate({"idempotency_key": some})
        runs = client.read_flow_runs(flow_run_filter=wanted, limit=KEYS_AT_ONCE)
        known |= {run.idempotency_key for run in runs}
    return [arrival for key, arrival in keys.items() if key not in known]


def find_running_addition(client: SyncPrefectClient, store: Store) -> FlowRun | None:
    """Return an addition to a model of this store that is not over, started by anybody."""
    runs = client.read_flow_runs(
        flow_filter=FlowFilter.model_validate({"name": {"any_": ["add-dump"]}}),
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": UNFINISHED}}}),
        limit=KEYS_AT_ONCE,
    )
    return next((run for run in runs if run.parameters.get("store") == store.address), None)


def fill_form(given: Mapping[str, Any], path: str, store: Store, watch: Watch) -> dict[str, Any]:
    """Return the parameters of a run on a dump in which it differs from its deployment, whose own
    are `given`.
    """
    chosen: dict[str, Any] = {"dump": {**given.get("dump", {}), "paths": [path]}}
    chosen["store"] = store.address
    if watch.each == "whole run":
        return chosen
    form = add_dump.choose_newest_base(Addition(**{**given, **chosen}), store)
    return {**chosen, "increment": form.increment.model_dump(mode="json")}


def start_run(
    store: Store, deployment: str, arrival: NewFile, parameters: Mapping[str, Any]
) -> None:
    """Start the run of a dump; one that the server has already stays the only one."""
    run: Any = run_deployment(
        deployment,
        parameters=dict(parameters),
        idempotency_key=compute_idempotency_key(store, arrival),
        timeout=0,
        as_subflow=False,
        tags=["new-dump"],
    )
    find_run_logger().info("new dump %s: started %s", arrival.path, run.name)


def compute_idempotency_key(store: Store, arrival: NewFile) -> str:
    """Return the key of a run: two stores on one server have a run each of the same dump."""
    identity = json.dumps([store.address, arrival.key])
    return f"dump-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"
