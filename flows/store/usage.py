"""Who needs which stage folder of a store, what room each takes, and what may go."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.locks import try_lock
from amazon_electra.flows.store.stage import find_class
from amazon_electra.flows.store.store import Manifest, Store

RUN_MARK = "process.lock"
"""In a run's folder of the store: locked for as long as the process of the run lives."""


@dataclass(frozen=True)
class Run:
    """A stage that nothing else was made of, with everything it was made of."""

    last: Manifest
    lineage: tuple[Manifest, ...]

    @property
    def fingerprints(self) -> set[str]:
        return {manifest["fingerprint"] for manifest in self.lineage}

    @property
    def state(self) -> str:
        kind = find_class(self.last["stage"])
        return "complete" if kind and kind.ends_run else "unfinished"

    def find_value(self, stage: str, *keys: str) -> str:
        """Return a value of the first stage of this name, or nothing."""
        for manifest in self.lineage:
            if manifest["stage"] == stage:
                value: Any = manifest
                for key in keys:
                    value = value.get(key, {})
                return str(value or "")
        return ""


def list_runs(store: Store) -> list[Run]:
    """Return the runs of a store, oldest first; of one that did not end, one for all its cells."""
    manifests = store.list_manifests()
    known = {manifest["fingerprint"]: manifest for manifest in manifests}
    used = {source["fingerprint"] for m in manifests for source in m["inputs"].values()}
    runs: dict[str, Run] = {}
    for manifest in manifests:
        if manifest["fingerprint"] not in used:
            lineage = tuple(origin for _, origin in store.trace_lineage(manifest, known))
            run = Run(manifest, lineage)
            key = manifest["fingerprint"]
            if run.state != "complete":
                key = f"unfinished {run.find_value('dump', 'fingerprint')}"
                others = runs[key].lineage if key in runs else ()
                every = {m["fingerprint"]: m for m in (*lineage, *others)}
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
    """Return the name of the folder of a complete stage in its store."""
    return f"{manifest['stage']}/{manifest['fingerprint']}"


def list_prunable(
    store: Store,
    kept: Sequence[str],
    registered: Iterable[str] = (),
) -> list[str]:
    """Return the folders that no kept run, study or registered model needs.

    `kept` are beginnings of the fingerprints of runs, empty for all; `registered` the fingerprints
    of the stages that models of the registry were made of. Runs that did not end are kept.
    UserError while a run is under way, here or on another host, which shows by what it makes:
    nobody knows what it needs next.
    """
    if under_way := list_living_runs(store):
        raise UserError(f"a run is under way ({under_way[0]}); prune once it has ended")
    complete = {name_folder(manifest) for manifest in store.list_manifests()}
    begun = [name for name in store.place.list_folders() if name not in complete]
    if held := store.place.list_held(begun):
        raise UserError(f"a run is under way: {min(held)} is being made; prune once it has ended")
    needed: set[str] = set()
    for run in _choose_runs(list_runs(store), list(kept)):
        needed |= run.fingerprints
    for fingerprint in registered:
        for manifest in store.find(fingerprint):
            needed |= {origin["fingerprint"] for _, origin in store.trace_lineage(manifest)}
    return [n for n in store.place.list_folders() if n.split("/")[1] not in needed]


def _choose_runs(runs: list[Run], kept: list[str]) -> list[Run]:
    complete = [run for run in runs if run.state == "complete"]
    unfinished = [run for run in runs if run.state != "complete"]
    chosen = [r for r in complete if any(r.last["fingerprint"].startswith(k) for k in kept)]
    for beginning in kept:
        if not any(run.last["fingerprint"].startswith(beginning) for run in complete):
            raise UserError(
                f"--keep {beginning}: no such run; `amazon-electra runs` lists them with their "
                "fingerprints"
            )
    studies = [run for run in complete if run.last["stage"] == "study"]
    return [*chosen, *studies, *unfinished] if kept else runs
