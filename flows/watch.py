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
from typing import Any, Literal, Self

from prefect import flow
from pydantic import Field, model_validator

from beam_jobs.config import CorpusOptions
from beam_jobs.job.files import write_json
from beam_jobs.job.locks import exclusive_lock
from beam_jobs.job.storage import is_remote
from flows import add_dump
from flows.configuration.addresses import Address
from flows.configuration.parameters import (
    Addition,
    Comparison,
    Corpus,
    Finetuning,
    Format,
    Increment,
    Parameters,
    PresetName,
    Pretraining,
    Promotion,
    Shards,
    Vocabulary,
)
from flows.configuration.sections import Section, make_form_field
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


class Reading(Section):
    """How the files of every new dump are read."""

    columns: str = make_form_field(CorpusOptions, "columns", default="")
    format: Format = Field(default="", description="Empty: found out from the content")
    encoding: str = Field(default="", description="Of the text, for example cp1252; empty: UTF-8")


class RunTemplate(Section):
    """What whole runs are asked to do, as their own form has it; the dump is the new one."""

    dump: Reading = Reading()
    preset: PresetName = "tiny"
    corpus: Corpus = Corpus()
    vocabulary: Vocabulary = Vocabulary()
    shards: Shards = Shards()
    pretraining: Pretraining = Pretraining()
    finetuning: Finetuning = Finetuning()
    promotion: Promotion = Promotion()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        """Refuse a mistake when the form is filled in, not when a dump arrives."""
        Parameters.model_validate(self.fill("sample:1", "store"))
        return self

    def fill(self, path: str, store: str) -> dict[str, Any]:
        """Return the parameters of a run on a dump, without what the form leaves as it is."""
        chosen = self.model_dump(mode="json", exclude_defaults=True)
        dump = {**chosen.pop("dump", {}), "paths": [path]}
        return {**chosen, "preset": self.preset, "dump": dump, "store": store}


class AdditionTemplate(Section):
    """What runs that add a dump are asked to do; the base of the first one, and how it goes on."""

    dump: Reading = Reading()
    increment: Increment = Increment()
    finetuning: Comparison = Comparison()
    promotion: Promotion = Promotion()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        self.fill("sample:1", "store")
        return self

    def fill(self, path: str, store: str) -> Addition:
        """Return the form of a run that adds a dump."""
        sections = {name: getattr(self, name) for name in ("increment", "finetuning", "promotion")}
        dump = {**self.dump.model_dump(), "paths": [path]}
        return Addition.model_validate({**sections, "dump": dump, "store": store})


Note = dict[str, Any]
"""Of one dump: where it lies, the run that is started for it, and its place in the order."""
DEPLOYMENTS = {"whole run": "domain-adaptation/domain-adaptation", "added": "add-dump/add-dump"}


class NotStarted(RuntimeError):
    """Runs could not be started, or places not be reached; the next look tries again."""


@flow(name="watch-dumps", flow_run_name="watch-dumps", **FAILURE_HOOKS)
def watch_dumps(
    watch: Watch = Watch(),  # noqa: B008 - frozen, and the form shows what it holds
    run: RunTemplate = RunTemplate(),  # noqa: B008
    addition: AdditionTemplate = AdditionTemplate(),  # noqa: B008
    announced: str = "",
    store: str = "store",
) -> list[str]:
    """Look for new dumps and start one run for each, once.

    Args:
        watch: Where new dumps appear, when one is taken for whole, and what is started for it.
        run: What whole runs are asked to do.
        addition: What runs that add a dump are asked to do.
        announced: A dump in one of the places that is whole, as an event says; usually left empty.
            It is taken at once.
            Like places, a relative one lies in the store.
        store: Folder of the results.
    """
    return look_for_dumps(Store(store), watch, run, addition, announced)


def look_for_dumps(
    store: Store,
    watch: Watch,
    run: RunTemplate = RunTemplate(),  # noqa: B008
    addition: AdditionTemplate = AdditionTemplate(),  # noqa: B008
    announced: str = "",
) -> list[str]:
    """Start what is new and return its paths; raise NotStarted at the end if some failed."""
    restrict_store(store.root)
    places = [_resolve_place(store, place) for place in watch.places]
    if INBOX in watch.places:
        (store.root / INBOX).parent.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}

    def build_note(arrival: Arrival) -> Note:
        if watch.each == "added":
            return plan_addition(store, addition.fill(arrival.path, str(store.root)))
        return {"parameters": run.fill(arrival.path, str(store.root))}

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
    identity = json.dumps([str(store.root), note["deployment"], note["key"]])
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
