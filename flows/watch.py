"""Finds new dumps and starts one run for each, once.

Before a run is started a note of it is written, with its place in the order and all its parameters; a watcher that dies
in between leaves a note without a run, and the next look starts exactly that run. Watchers of one store look one at a
time. What makes it once even where they cannot see each other is the server: a run is created under the fingerprint of
its dump, store and deployment as idempotency key, and the server gives the same run to whoever asks a second time.
A dump whose run cannot be started does not keep the others waiting: it is tried again at every look.

Dumps that are added to a model chain: the base of each is what the one before it makes, finished or not.
"""

import fcntl
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

from beam_jobs.storage import is_remote
from flows import add_dump, increments
from flows.addresses import Address
from flows.arrivals import Arrival, arrivals
from flows.failures import NOTED
from flows.parameters import Addition, Increment, PresetName, Section
from flows.presentation import run_logger
from flows.store import Store
from model.json_file import write_json

INBOX = "inbox/*"
"""Of the store, and there as soon as somebody looks."""


class Watch(Section):
    """Where new dumps appear, and when one is taken for whole."""

    places: list[Address] = Field(
        default=[INBOX],
        min_length=1,
        description="Globs, folders or object-store prefixes (gs://bucket/reviews/*); relative ones lie in the store",
    )
    settle_seconds: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="A file that changed less than this long ago may still be being written; one that changed within "
        "the last 15 minutes must besides be the same in two looks. 0: neither is asked",
    )
    each: Literal["whole run", "added"] = Field(
        default="whole run",
        description="whole run: a model of its own for each dump; added: each is added to the model of the one before, "
        "the first to increment.base",
    )


Note = dict[str, Any]
"""Of one dump: where it lies, the run that is started for it, and its place in the order."""
DEPLOYMENTS = {"whole run": "domain-adaptation/domain-adaptation", "added": "add-dump/add-dump"}


class NotStarted(RuntimeError):
    """Runs that could not be started, of dumps that are tried again at the next look, or places that hold others."""


@flow(name="watch-dumps", flow_run_name="watch-dumps", **NOTED)
def watch_dumps(
    watch: Watch = Watch(),  # noqa: B008 - frozen, and the form shows what it holds
    preset: PresetName = "tiny",
    increment: Increment = Increment(),  # noqa: B008
    announced: str = "",
    store: str = "store",
) -> list[str]:
    """Look for new dumps and start one run for each, once.

    Args:
        watch: Where new dumps appear, when one is taken for whole, and what is started for it.
        preset: Of whole runs.
        increment: Of dumps that are added: the base of the first one, and how training goes on.
        announced: A dump in one of the places that is whole, as an event says; usually left empty. It is taken at once.
            Like places, a relative one lies in the store.
        store: Folder of the results.
    """
    return look(Store(store), watch, preset, increment, announced)


def look(
    store: Store,
    watch: Watch,
    preset: str = "tiny",
    increment: Increment = Increment(),  # noqa: B008
    announced: str = "",
) -> list[str]:
    """Starts what is new; the paths of it. Raises NotStarted at the end, where that failed for some."""
    places = [_address(store, place) for place in watch.places]
    if INBOX in watch.places:
        (store.root / INBOX).parent.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}

    def wanted(arrival: Arrival) -> Note:
        if watch.each == "added":
            return addition(store, arrival, increment)
        return {"parameters": {"preset": preset, "dump": {"paths": [arrival.path]}, "store": str(store.root)}}

    def begin(arrival: Arrival) -> None:
        start(store, noted(store, arrival, {"deployment": DEPLOYMENTS[watch.each], **wanted(arrival)}))

    with looking(store):
        for note in notes_of(store):
            if "flow_run" not in note:
                failed |= attempted(note["path"], partial(start, store, note))
        at_once = _address(store, announced) if announced else ""
        found = arrivals(places, watch.settle_seconds, time.time(), sizes(store), at_once)
        write_json(_sizes(store), found.sizes)
        new = [arrival for arrival in found.whole if not _path(store, arrival.key).exists()]
        for arrival in new:
            failed |= attempted(arrival.path, partial(begin, arrival))
    for place in found.missing:
        run_logger().warning("watch.places: there is no %s; relative places lie in the store", place)
    if found.not_taken:
        run_logger().warning("announced, but not taken: %s: %s", announced, found.not_taken)
    for path, why in found.left_alone.items():
        run_logger().info("left alone: %s: %s", path, why)
    run_logger().info("%d dumps there, %d of them new", len(found.whole), len(new))
    tell_at_the_end(found.unreachable, failed)
    return [arrival.path for arrival in new]


def tell_at_the_end(unreachable: Sequence[str], failed: Mapping[str, str]) -> None:
    """What went wrong with some places and dumps; the others were seen to meanwhile."""
    told = [f"{path}: {why}" for path, why in failed.items()]
    if failed:
        told[0] = f"{len(failed)} runs could not be started, the next look tries again: {told[0]}"
    if told := [*unreachable, *told]:
        raise NotStarted("; ".join(told))


def _address(store: Store, place: str) -> str:
    """Relative ones lie in the store."""
    return place if is_remote(place) else str(store.root / Path(place).expanduser())


def attempted(path: str, begin: Callable[[], None]) -> dict[str, str]:
    """Why it could not be begun, by the dump's path; empty if it could. What goes wrong with one dump is its own."""
    try:
        begin()
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        run_logger().error("%s: its run could not be started: %s", path, why)
        return {path: why}
    return {}


@contextmanager
def looking(store: Store) -> Iterator[None]:
    """One watcher of a store at a time; the lock dies with the process that holds it."""
    folder = store.root / "arrivals"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def addition(store: Store, arrival: Arrival, increment: Increment) -> Note:
    """What is to be started for a dump that is added to what the one before it makes.

    The first dump goes to the base that the form names, and so does the first one after the form names another.
    """
    dump = {"paths": [arrival.path]}
    form = Addition.model_validate({"dump": dump, "increment": increment, "store": str(store.root)})
    before = [note["makes"] for note in notes_of(store) if note.get("chain") == increment.base]
    form = form.based_on(before[-1]) if before else add_dump.settled(form)
    parameters = {"dump": dump, "increment": form.increment.model_dump(mode="json"), "store": str(store.root)}
    return {"parameters": parameters, "chain": increment.base, "makes": increments.promise(store, form)}


def noted(store: Store, arrival: Arrival, wanted: Note) -> Note:
    """Writes down what is to be started, before it is."""
    number = max((note.get("number", 0) for note in notes_of(store)), default=0) + 1
    note = {"key": arrival.key, "number": number, **asdict(arrival), **wanted}
    write_json(_path(store, arrival.key), note)
    return note


def start(store: Store, note: Note) -> None:
    """Starts the run of a note; one that the server has already stays the only one."""
    from prefect.deployments import run_deployment

    run: Any = run_deployment(
        note["deployment"],
        parameters=note["parameters"],
        idempotency_key=idempotency_key(store, note),
        timeout=0,
        as_subflow=False,
        tags=["new-dump"],
    )
    write_json(_path(store, note["key"]), {**note, "flow_run": str(run.id)})
    run_logger().info("new dump %s: started %s", note["path"], run.name)


def idempotency_key(store: Store, note: Note) -> str:
    """Two stores on one server have a run each, of the same dump."""
    identity = json.dumps([str(store.root), note["deployment"], note["key"]])
    return f"dump-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def notes_of(store: Store) -> list[Note]:
    """Of every dump seen so far, in the order in which their runs were to be started."""
    notes = [json.loads(path.read_text()) for path in (store.root / "arrivals").glob("*.json")]
    return sorted(notes, key=lambda note: note.get("number", 0))


def _path(store: Store, key: str) -> Path:
    return store.root / "arrivals" / f"{key}.json"


def sizes(store: Store) -> dict[str, str]:
    """What the last look saw; nothing before the first one."""
    try:
        return dict(json.loads(_sizes(store).read_text()))
    except FileNotFoundError:
        return {}


def _sizes(store: Store) -> Path:
    return store.root / "arrivals" / "last_look"
