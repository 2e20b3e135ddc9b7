"""Finds new dumps and starts one run for each, once.

What makes it once is the server: a run is created under the fingerprint of its dump as idempotency key, and the server
gives the same run to whoever asks a second time, another watcher or this one after a crash in the middle. The notes
kept in the store only spare it the question.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from prefect import flow
from pydantic import Field

from flows.parameters import PresetName, Section
from flows.presentation import run_logger
from flows.store import Store, write_json

UNFINISHED = (".*", "*.tmp", "*.part", "*.partial", "*.crdownload", "*~")
"""Names under which files are written before they are whole."""


class Watch(Section):
    """Where new dumps appear, and when one is taken for whole."""

    places: list[str] = Field(
        default=["inbox/*"],
        min_length=1,
        description="Globs, folders or object-store prefixes (gs://bucket/reviews/*); relative ones lie in the store",
    )
    settle_seconds: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="A file that changed less than this long ago may still be being written",
    )


@dataclass(frozen=True)
class Arrival:
    """A dump that lies there, whole as far as one can see."""

    path: str
    size: int
    changed: float
    """Seconds since the epoch."""

    @property
    def key(self) -> str:
        """The same file under the same name is the same dump; a file that was replaced is a new one."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:32]


def arrivals(places: Iterable[str], settle_seconds: float, now: float) -> list[Arrival]:
    """Everything that lies there, oldest first; what is still being written is left alone."""
    from fsspec.core import url_to_fs

    found: dict[str, Arrival] = {}
    for place in places:
        files, path = url_to_fs(place)
        pattern = f"{path.rstrip('/')}/*" if files.isdir(path) else path
        for name, info in files.glob(pattern, detail=True).items():
            arrival = Arrival(
                files.unstrip_protocol(name).removeprefix("file://"), info.get("size") or 0, changed(info)
            )
            if info["type"] == "file" and whole(arrival, settle_seconds, now):
                found[arrival.path] = arrival
    return sorted(found.values(), key=lambda arrival: (arrival.changed, arrival.path))


def whole(arrival: Arrival, settle_seconds: float, now: float) -> bool:
    """An object store shows an object when it is whole; a file in a folder grows."""
    name = arrival.path.rsplit("/", 1)[-1]
    if arrival.size == 0 or any(fnmatch(name, pattern) for pattern in UNFINISHED):
        return False
    return "://" in arrival.path or now - arrival.changed >= settle_seconds


def changed(info: dict[str, Any]) -> float:
    """When a file changed, as the different file systems tell it."""
    value = next((info[k] for k in ("mtime", "updated", "LastModified", "last_modified", "created") if k in info), 0.0)
    return value.timestamp() if hasattr(value, "timestamp") else float(value or 0.0)


@flow(name="watch-dumps", flow_run_name="watch-dumps")
def watch_dumps(
    watch: Watch = Watch(),  # noqa: B008 - frozen, and the form shows what it holds
    preset: PresetName = "tiny",
    deployment: str = "domain-adaptation/domain-adaptation",
    store: str = "store",
) -> list[str]:
    """Look for new dumps and start one run for each, once.

    Args:
        watch: Where new dumps appear, and when one is taken for whole.
        preset: Of the runs that are started.
        deployment: What is started for each new dump, as flow/deployment.
        store: Folder of the results.
    """
    kept = Store(store)
    places = [place if "://" in place else str(kept.root / Path(place).expanduser()) for place in watch.places]
    found = arrivals(places, watch.settle_seconds, time.time())
    started = [a.path for a in found if start_once(kept, a, deployment, {"preset": preset, "store": str(kept.root)})]
    run_logger().info("%d dumps there, %d of them new", len(found), len(started))
    return started


def start_once(store: Store, arrival: Arrival, deployment: str, parameters: dict[str, Any]) -> bool:
    """Starts the run of a dump, unless a note says that this was done; whether there was no note."""
    from prefect.deployments import run_deployment

    note = store.root / "arrivals" / f"{arrival.key}.json"
    if note.exists():
        return False
    run: Any = run_deployment(
        deployment,
        parameters={**parameters, "dump": {"paths": [arrival.path]}},
        idempotency_key=f"dump-{arrival.key}",
        timeout=0,
        as_subflow=False,
        tags=["new-dump"],
    )
    note.parent.mkdir(parents=True, exist_ok=True)
    write_json(note, {**asdict(arrival), "flow_run": str(run.id)})
    run_logger().info("new dump %s: started %s", arrival.path, run.name)
    return True
