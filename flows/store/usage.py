"""The runs of a store: which stage folders each needs, what became of its models, what may go."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.locks import try_lock
from amazon_electra.beam_jobs.core.nesting import find_json, read_json
from amazon_electra.flows.store.stage import Stage, find_class
from amazon_electra.flows.store.store import Manifest, Store

RUN_MARK = "process.lock"
"""In a run's folder of the store: locked for as long as the process of the run lives."""
REGISTERED = "registered.json"
"""Beside a report, on the machine of its run: what became of the run's models in the registry."""


@dataclass(frozen=True)
class Run:
    """A stage that nothing else was made of, with everything it was made of."""

    last: Manifest
    lineage: tuple[Manifest, ...]

    @property
    def state(self) -> str:
        kind = find_class(self.last["stage"])
        return "complete" if kind and kind.ends_run else "unfinished"

    def find_value(self, stage: str, *keys: str) -> str:
        """Return a value of the first stage of this name, or nothing."""
        value: Any = next((m for m in self.lineage if m["stage"] == stage), {})
        for key in keys:
            value = value.get(key, {})
        return str(value or "")


def list_runs(store: Store) -> list[Run]:
    """Return the runs of a store, oldest first; of one that did not end, one for all its cells."""
    manifests = store.list_manifests()
    known = {manifest["fingerprint"]: manifest for manifest in manifests}
    used = {source["fingerprint"] for m in manifests for source in m["inputs"].values()}
    runs: dict[str, Run] = {}
    for manifest in (one for one in manifests if one["fingerprint"] not in used):
        run = Run(manifest, tuple(one for _, one in store.trace_lineage(manifest, known)))
        key = manifest["fingerprint"]
        if run.state != "complete":
            key = f"unfinished {run.find_value('dump', 'fingerprint')}"
            others = runs[key].lineage if key in runs else ()
            every = {m["fingerprint"]: m for m in (*run.lineage, *others)}
            run = Run(manifest, tuple(every.values()))
        runs[key] = run
    return list(runs.values())


def list_living_runs(store: Store) -> list[str]:
    """Return the names of the runs whose process lives on this machine."""
    names = []
    for mark in sorted(store.root.glob(f"runs/*/{RUN_MARK}")):
        with open(mark, encoding="utf-8") as file:
            if not try_lock(file):
                names.append(file.read() or mark.parent.name)
    return names


def name_folder(manifest: Manifest) -> str:
    """Return the path of the folder of a complete stage in its store."""
    return f"{manifest['stage']}/{manifest['fingerprint']}"


def list_prunable(
    store: Store, kept: Sequence[str], registered: Iterable[str] = ()
) -> dict[str, int]:
    """Return the folders, with their bytes, that no kept run, study or registered model needs.

    `kept` are beginnings of the fingerprints of runs, empty for all; `registered` the fingerprints
    of the stages that models of the registry were made of. Studies and runs that did not end are
    kept. UserError while a run is under way here: nobody knows what it needs next.
    """
    if under_way := list_living_runs(store):
        raise UserError(f"a run is under way ({under_way[0]}); prune once it has ended")
    runs, needed = list_runs(store), list[Manifest]()
    ended = [run.last["fingerprint"] for run in runs if run.state == "complete"]
    for beginning in kept:
        is_known = any(fingerprint.startswith(beginning) for fingerprint in ended)
        require(is_known, "no such run; `amazon-electra runs` lists them", "keep", beginning)
    for run in runs:
        is_kept = not kept or run.last["fingerprint"].startswith(tuple(kept))
        if is_kept or run.state != "complete" or run.last["stage"] == "study":
            needed += run.lineage
    for manifest in (one for fingerprint in registered for one in store.find(fingerprint)):
        needed += (origin for _, origin in store.trace_lineage(manifest))
    fingerprints = {manifest["fingerprint"] for manifest in needed}
    sizes = store.measure_folders().items()
    return {folder: size for folder, size in sizes if folder.split("/")[1] not in fingerprints}


def save_registered(
    store: Store, report: Stage, dump: Stage | None, wish: dict[str, Any], became: str
) -> None:
    """Keep what became of the models of a run that has sent all to MLflow; `wish` is the section of
    the form about that.
    """
    content = {"dump": dump.fingerprint if dump else "", "promotion": wish, "registered": became}
    write_json(store.folder(report) / REGISTERED, content)


def read_registered(store: Store, report: Stage, wish: dict[str, Any]) -> str | None:
    """Return what `save_registered` kept for the same wish; None without it."""
    found = find_json(store.folder(report) / REGISTERED)
    return found["registered"] if found.get("promotion") == wish else None


def has_finished_run(store: Store, dump: Stage) -> bool:
    """Return whether a run of this dump has ended on this machine."""
    files = store.root.glob(f"report/*/{REGISTERED}")
    return any(read_json(file)["dump"] == dump.fingerprint for file in files)
