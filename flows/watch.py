"""Finds new dumps and starts one run for each, once.

Before a run is started a note of it is written, with its place in the order and all its
parameters; a watcher that dies in between leaves a note without a run, and the next look starts
exactly that run. Watchers of one store look one at a time. Prefect's idempotency keys make it once
even where they cannot see each other: the server gives the run of a dump, store and deployment to
whoever asks a second time. A dump whose run cannot be started does not keep the others waiting: it
is tried again at every look. The notes are ours because Prefect keeps idempotency keys, but neither
an order nor a run that could not be created.

Dumps that are added to a model chain: the base of each is what the one before it makes, finished
or not.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from prefect import flow
from pydantic import Field

from beam_jobs.job.errors import UserError
from beam_jobs.job.files import write_json
from beam_jobs.job.locks import exclusive_lock
from beam_jobs.job.storage import is_remote
from flows import add_dump
from flows.configuration.addresses import Address
from flows.configuration.parameters import STORE, Addition, AdditionTemplate, RunTemplate
from flows.configuration.sections import Section, take_fields
from flows.configuration.settings import list_changes
from flows.dumps.arrivals import Arrival, find_arrivals
from flows.dumps.promises import write_promise
from flows.runner.failures import FAILURE_HOOKS
from flows.runner.run_log import find_run_logger
from flows.runner.store import Store
from flows.servers.access import restrict_store

INBOX = "inbox/*"
"""Of the store, and there as soon as somebody looks."""


class Watch(Section):
    """Where new dumps appear, and when one is taken for whole."""

    places: list[Address] = Field(
        default=[INBOX],
        min_length=1,
        description="Globs, folders or object-store prefixes (gs://bucket/reviews/*); relative "
        "ones lie in the store",
    )
    settle_seconds: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="A file that changed less than this long ago may still be being written; one "
        "that changed within the last 15 minutes must besides be the same in two looks. "
        "0: neither is asked",
    )
    each: Literal["whole run", "added"] = Field(
        default="whole run",
        description="whole run: a model of its own for each dump; added: each is added to the "
        "model of the one before, the first to increment.base",
    )


class WatchForm(Section):
    """What the watcher is asked to do."""

    watch: Watch = Watch()
    run: RunTemplate = RunTemplate()
    addition: AdditionTemplate = AdditionTemplate()
    announced: str = Field(
        default="",
        description="A dump in one of the places that is whole, as an event says; usually left "
        "empty. It is taken at once. Like places, a relative one lies in the store.",
    )
    store: str = STORE


def fill_template(
    template: RunTemplate | AdditionTemplate, path: str, store: Store
) -> dict[str, Any]:
    """Return the parameters of a run on a dump, without what the form leaves as it is."""
    chosen = template.model_dump(mode="json", exclude_defaults=True)
    chosen["dump"] = {**chosen.get("dump", {}), "paths": [path]}
    return {**chosen, "store": store.address}


Note = dict[str, Any]
"""Of one dump: where it lies, the run that is started for it, and its place in the order."""
DEPLOYMENTS = {"whole run": "domain-adaptation/domain-adaptation", "added": "add-dump/add-dump"}


class NotStarted(RuntimeError):
    """Runs could not be started, or places not be reached; the next look tries again."""


@flow(name="watch-dumps", flow_run_name="watch-dumps", **FAILURE_HOOKS)
@take_fields(WatchForm)
def watch_dumps(**given: Any) -> list[str]:
    """Look for new dumps and start one run for each, once."""
    form = WatchForm(**given)
    return look_for_dumps(Store(form.store), form.watch, form.run, form.addition, form.announced)


def look_for_dumps(
    store: Store,
    watch: Watch,
    run: RunTemplate = RunTemplate(),  # noqa: B008
    addition: AdditionTemplate = AdditionTemplate(),  # noqa: B008
    announced: str = "",
) -> list[str]:
    """Start what is new and return its paths; raise NotStarted at the end if some failed."""
    check_templates(watch, run, addition)
    restrict_store(store.root)
    places = [_resolve_place(store, place) for place in watch.places]
    if INBOX in watch.places:
        (store.root / INBOX).parent.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}

    def build_note(arrival: Arrival) -> Note:
        if watch.each == "added":
            form = Addition(**fill_template(addition, arrival.path, store))
            return plan_addition(store, form)
        parameters = fill_template(run, arrival.path, store)
        return {"parameters": {"preset": run.preset, **parameters}}

    def begin(arrival: Arrival) -> None:
        start_run(
            store,
            write_note(
                store, arrival, {"deployment": DEPLOYMENTS[watch.each], **build_note(arrival)}
            ),
        )

    with hold_watch_lock(store):
        for note in list_notes(store):
            if "flow_run" not in note:
                failed |= try_starting(note["path"], partial(start_run, store, note))
        at_once = _resolve_place(store, announced) if announced else ""
        found = find_arrivals(places, watch.settle_seconds, time.time(), read_sizes(store), at_once)
        write_json(_locate_sizes(store), found.sizes)
        new = [arrival for arrival in found.whole if not _locate_note(store, arrival.key).exists()]
        for arrival in new:
            failed |= try_starting(arrival.path, partial(begin, arrival))
    for place in found.missing:
        find_run_logger().warning(
            "watch.places: there is no %s; relative places lie in the store", place
        )
    if found.not_taken:
        find_run_logger().warning("announced, but not taken: %s: %s", announced, found.not_taken)
    for path, why in found.left_alone.items():
        find_run_logger().info("left alone: %s: %s", path, why)
    find_run_logger().info("%d dumps there, %d of them new", len(found.whole), len(new))
    raise_failures(found.unreachable, failed)
    return [arrival.path for arrival in new]


def check_templates(watch: Watch, run: RunTemplate, addition: AdditionTemplate) -> None:
    """Raise UserError where the template is changed of a kind of run that is not started."""
    name, idle = ("addition", addition) if watch.each == "whole run" else ("run", run)
    if changed := list_changes(idle):
        raise UserError(
            f"{name}.{changed[0]} has no effect where watch.each is {watch.each}: leave it out"
        )


def raise_failures(unreachable: Sequence[str], failed: Mapping[str, str]) -> None:
    """Raise NotStarted for what went wrong with some places and dumps, after all others."""
    told = [f"{path}: {why}" for path, why in failed.items()]
    if failed:
        told[0] = f"{len(failed)} runs could not be started, the next look tries again: {told[0]}"
    if told := [*unreachable, *told]:
        raise NotStarted("; ".join(told))


def _resolve_place(store: Store, place: str) -> str:
    """Return the address of a place; relative ones lie in the store."""
    return place if is_remote(place) else str(store.root / Path(place).expanduser())


def try_starting(path: str, begin: Callable[[], None]) -> dict[str, str]:
    """Call `begin`; return why it failed by the dump's path, or nothing.

    What goes wrong with one dump must not keep the others waiting.
    """
    try:
        begin()
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        find_run_logger().error("%s: its run could not be started: %s", path, why)
        return {path: why}
    return {}


@contextmanager
def hold_watch_lock(store: Store) -> Iterator[None]:
    """Let one watcher of a store look at a time; the lock dies with the process that holds it."""
    with exclusive_lock(store.root / "arrivals" / "lock"):
        yield


def plan_addition(store: Store, form: Addition) -> Note:
    """Return what is to be started for a dump that is added to what the one before it makes.

    The first dump goes to the base that the form names, and so does the first one after the form
    names another.
    """
    chain = form.increment.base
    before = [note["makes"] for note in list_notes(store) if note.get("chain") == chain]
    form = form.replace_base(before[-1]) if before else add_dump.settle_base(form, store)
    parameters = form.model_dump(mode="json", exclude_defaults=True)
    return {
        "parameters": {**parameters, "increment": form.increment.model_dump(mode="json")},
        "chain": chain,
        "makes": write_promise(store, form),
    }


def write_note(store: Store, arrival: Arrival, wanted: Note) -> Note:
    """Write down what is to be started, before it is."""
    number = max((note.get("number", 0) for note in list_notes(store)), default=0) + 1
    note = {"key": arrival.key, "number": number, **asdict(arrival), **wanted}
    write_json(_locate_note(store, arrival.key), note)
    return note


def start_run(store: Store, note: Note) -> None:
    """Start the run of a note; one that the server has already stays the only one."""
    from prefect.deployments import run_deployment

    run: Any = run_deployment(
        note["deployment"],
        parameters=note["parameters"],
        idempotency_key=compute_idempotency_key(store, note),
        timeout=0,
        as_subflow=False,
        tags=["new-dump"],
    )
    write_json(_locate_note(store, note["key"]), {**note, "flow_run": str(run.id)})
    find_run_logger().info("new dump %s: started %s", note["path"], run.name)


def compute_idempotency_key(store: Store, note: Note) -> str:
    """Return the key of a run: two stores on one server have a run each of the same dump."""
    identity = json.dumps([store.address, note["deployment"], note["key"]])
    return f"dump-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def list_notes(store: Store) -> list[Note]:
    """Return the notes of every dump seen so far, in the order in which their runs were started."""
    notes = [json.loads(path.read_text()) for path in (store.root / "arrivals").glob("*.json")]
    return sorted(notes, key=lambda note: note.get("number", 0))


def _locate_note(store: Store, key: str) -> Path:
    return store.root / "arrivals" / f"{key}.json"


def read_sizes(store: Store) -> dict[str, str]:
    """Return what the last look saw; nothing before the first one."""
    try:
        return dict(json.loads(_locate_sizes(store).read_text()))
    except FileNotFoundError:
        return {}


def _locate_sizes(store: Store) -> Path:
    return store.root / "arrivals" / "last_look"
