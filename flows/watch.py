"""Lists the watched places and starts the run of all files there, once for each set of files.

A new dump is one more file. The server returns the run of an idempotency key if it is asked for it
a second time, so two watchers start one run, and one that dies starts nothing twice.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from pydantic import Field

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.files import hash_bytes, write_json
from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.beam_jobs.core.storage import Identity, is_remote
from amazon_electra.beam_jobs.reading.compression import PACKED
from amazon_electra.beam_jobs.reading.formats import list_endings
from amazon_electra.flows.configuration.addresses import Address
from amazon_electra.flows.runner.logs import find_run_logger
from amazon_electra.flows.store.store import Store

INBOX = "inbox/*"  # of the store, and there as soon as somebody looks
SEEN = Path("runs", "seen.json")  # of a store: the files that the last look saw
DEPLOYMENT = "domain-adaptation/domain-adaptation"


@flow(name="watch-dumps", flow_run_name="watch-dumps")
def watch_dumps(
    places: Annotated[Sequence[Address], Field(min_length=1)] = (INBOX,), store: str = "store"
) -> list[str]:
    """Start the run of all files that lie in some places, unless they have one, and return them. A
    file is whole once two looks see it with the same size and time of change; an object of a bucket
    is whole at once. Fails where a place cannot be reached: what lies there belongs to the run.

    Args:
        places: Globs, folders or gs://bucket/reviews/* to look into; relative ones in the store
        store: Folder of all results
    """
    opened = Store(store)
    opened.check_access()
    if INBOX in places:
        (opened.root / INBOX).parent.mkdir(parents=True, exist_ok=True)
    files = find_whole_dumps(opened, places)
    paths = [path for path, *_ in files]
    key = f"dump-{hash_bytes(json.dumps([opened.address, *files]).encode())[:32]}"
    if not paths:
        return []
    with get_client(sync_client=True) as client:
        given = client.read_deployment_by_name(DEPLOYMENT).parameters
    run: Any = run_deployment(
        DEPLOYMENT,
        parameters={"dump": {**given.get("dump", {}), "paths": paths}, "store": opened.address},
        idempotency_key=key,
        timeout=0,
        as_subflow=False,
        tags=["new-dump"],
    )
    find_run_logger().info("%s is the run of these %d files", run.name, len(paths))
    return paths


def find_whole_dumps(store: Store, places: Sequence[str] = (INBOX,)) -> list[Identity]:
    """Return the dumps that lie in the places as the last look saw them, and keep what this one
    sees. Relative places lie in the store.
    """
    local = [p if is_remote(p) else str(store.root / Path(p).expanduser()) for p in places]
    files, others = find_dumps(local)
    seen = find_json(store.root / SEEN) or []
    write_json(store.root / SEEN, files)
    whole = [file for file in files if is_remote(file[0]) or list(file) in seen]
    for path in [*others, *(file[0] for file in files if file not in whole)]:
        find_run_logger().info("not taken, by its name, or until it stays as it is: %s", path)
    return whole


def find_dumps(places: Sequence[str]) -> tuple[list[Identity], list[str]]:
    """Return what lies in the places and is named like a dump, sorted by path, and the paths of the
    rest. UserError or TransientError where a place cannot be reached.
    """
    dumps, others = dict[str, Identity](), list[str]()
    for place in places:
        for path, known in storage.expand_pattern(place, "places").items():
            readable = os.fsencode(path).decode(errors="backslashreplace")
            if readable != path or not is_named_like_a_dump(path):
                others.append(readable)
                continue
            with suppress(FileNotFoundError):  # it was just moved away
                identity = known or storage.describe_identity(path)
                if identity[1]:
                    dumps[path] = identity
    return [dumps[path] for path in sorted(dumps)], others


def is_named_like_a_dump(path: str) -> bool:
    """Return True for reviews.json, reviews.json.gz and reviews.gz, but not for notes.md.gz."""
    endings = [ending[1:].lower() for ending in PurePosixPath(path).suffixes]
    packed = bool(endings) and endings[-1] in PACKED
    inner = endings[:-1] if packed else endings
    return inner[-1] in list_endings() if inner else packed
