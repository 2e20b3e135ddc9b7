"""The runs of a store: which stage folders each needs, what became of its models, what may go."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.flows.store.stage import Stage, find_class
from amazon_electra.flows.store.store import Manifest, Store
from amazon_electra.model.locks import exclusive_lock, try_lock

RUN_MARK = "process.lock"  # of a run's folder: locked for as long as its process lives
FINISHED = "finished"  # folder of what became of the models of each dump's reports


@dataclass(frozen=True)
class Run:
    """A stage that nothing else was made of, with everything it was made of."""

    last: Manifest
    lineage: list[Manifest]
    state: str

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
    for last in (one for one in manifests if one["fingerprint"] not in used):
        lineage, kind = [m for _, m in store.trace_lineage(last, known)], find_class(last["stage"])
        state, key = "complete", last["fingerprint"]
        if not (kind and kind.ends_run):
            state = "unfinished"
            key = f"of {next((m['fingerprint'] for m in lineage if m['stage'] == 'dump'), '')}"
            lineage += [m for m in (runs[key].lineage if key in runs else ()) if m not in lineage]
        runs[key] = Run(last, lineage, state)
    return list(runs.values())


@contextmanager
def mark_run(store: Store, run: str, name: str = "") -> Iterator[None]:
    """Hold the mark of a run, which has its name, while the block lasts."""
    mark = store.root / "runs" / run / RUN_MARK
    try:
        with exclusive_lock(mark):
            mark.write_text(name, encoding="utf-8")
            yield
    finally:
        mark.unlink(missing_ok=True)


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
    """Return the folders, with their bytes, that nothing needs: no run whose fingerprint
    begins as one of `kept` (empty: all), no study or run that did not end, no `registered` stage.
    UserError while a run is under way: nobody knows what it needs next.
    """
    if under_way := list_living_runs(store):
        raise UserError(f"a run is under way ({under_way[0]}); prune once it has ended")
    runs = list_runs(store)
    ended = [run.last["fingerprint"] for run in runs if run.state == "complete"]
    for beginning in kept:
        is_known = any(fingerprint.startswith(beginning) for fingerprint in ended)
        require(is_known, "no such run; `amazon-electra runs` lists them", "keep", beginning)
    models = (m for m in store.list_manifests() if m["fingerprint"] in set(registered))
    lineages = [[m for _, m in store.trace_lineage(model)] for model in models]
    for run in runs:
        is_kept = not kept or run.last["fingerprint"].startswith(tuple(kept))
        if is_kept or run.state != "complete" or run.last["stage"] == "study":
            lineages.append(run.lineage)
    fingerprints = {m["fingerprint"] for lineage in lineages for m in lineage}
    sizes = store.measure_folders().items()
    return {folder: size for folder, size in sizes if folder.split("/")[1] not in fingerprints}


def save_registered(
    store: Store, report: Stage, dump: Stage, wish: dict[str, Any], became: str
) -> None:
    """Keep what became of a run's models, as `wish`, the section of the form, asked for it."""
    file = store.root / FINISHED / dump.fingerprint / f"{report.fingerprint}.json"
    write_json(file, {"promotion": wish, "registered": became})


def read_registered(store: Store, report: Stage, dump: Stage, wish: dict[str, Any]) -> str | None:
    """Return what `save_registered` kept for the same wish; None without it."""
    found = find_json(store.root / FINISHED / dump.fingerprint / f"{report.fingerprint}.json")
    return found["registered"] if found.get("promotion") == wish else None


def has_finished_run(store: Store, dump: Stage) -> bool:
    """Return whether a run of this dump has ended on this machine."""
    return (store.root / FINISHED / dump.fingerprint).is_dir()
