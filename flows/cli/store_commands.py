"""`amazon-electra runs`, `show`, `prune`, `up`, `promote` and `suggest`."""

import os
from pathlib import Path
from typing import Annotated

from rich.filesize import decimal
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.command_line import make_command
from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.progress import format_count
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli.run_commands import StorePlace, build_store
from amazon_electra.flows.servers.access import build_client_environment, find_running_servers
from amazon_electra.flows.servers.stock import resolve_mlflow_uri, run_servers
from amazon_electra.flows.store.flatten import flatten_parameters, summarize_manifest
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.store.usage import (
    list_living_runs,
    list_prunable,
    list_runs,
    name_folder,
)
from amazon_electra.model.tracking.registry import list_registries, name_model

SHOWN = 88  # characters of a value that `show` prints; manifest.json has all of it


def open_store(place: str | None) -> Store:
    """Return the store; a UserError where there is none."""
    import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class

    store = build_store(place)
    store.check_access(writes=False)
    return store


def list_all(*, store: StorePlace = None) -> None:
    """List the runs of a store, oldest first."""
    opened = open_store(store)
    found, living, sizes = list_runs(opened), list_living_runs(opened), opened.measure_folders()
    for run in found:
        last, size = run.last, sum(sizes.get(name_folder(one), 0) for one in run.lineage)
        about = last["result"].get("answer") or summarize_manifest(last)
        made = f"{last['finished']}  {last['fingerprint']}  {run.state:<10}  {decimal(size):>8}"
        dump = run.find_value("dump", "result", "name")
        print(f"{made}  {dump:<20}  {last['stage']}: {' '.join(about.split())}")
    for name in living:
        print(f"running     {name}")


def show_stage(
    fingerprint: Annotated[str, Doc("Of a stage, or its first digits")],
    /,
    *,
    store: StorePlace = None,
) -> None:
    """Show a stage: its inputs, its result and its settings."""
    opened = open_store(store)
    made = opened.list_manifests()
    found = [one for one in made if one["fingerprint"].startswith(fingerprint)]
    how = f"`amazon-electra runs --store {opened.address}` lists its runs"
    require(found, f"no complete stage {fingerprint} in {opened.address}; {how}")
    for manifest in found:
        print(f"{opened.address}/{name_folder(manifest)}")
        for depth, origin in opened.trace_lineage(manifest):
            about = f"{origin['title']}  {origin['fingerprint']}  {origin['finished']}"
            print(f"{'   ' * depth}{about}")
        for title, part in (("result", "result"), ("settings", "parameters")):
            for name, value in flatten_parameters(manifest[part]).items():
                print(f"{title:<10}{name} {value[:SHOWN]}")


def prune_store(
    *,
    keep: Annotated[
        tuple[str, ...],
        Doc("Keep only runs and studies of these fingerprints, and the registry's models"),
    ] = (),
    yes: Annotated[bool, Doc("Remove, instead of listing")] = False,
    store: StorePlace = None,
) -> None:
    """List unfinished stages and stages of runs that are not kept; remove them with --yes. Stages
    that are being made stay, and those of runs that did not end.
    """
    opened, total, registered = open_store(store), 0, list[str]()
    if (opened.root / "mlflow").is_dir() or os.environ.get("MLFLOW_TRACKING_URI"):
        for registry in list_registries(resolve_mlflow_uri(opened.root)):
            for tags in registry.list_versions():
                registered += [tags[n] for n in ("encoder", "model", "report") if n in tags]
    for name, size in list_prunable(opened, keep, registered).items():
        if not yes or opened.remove(name):
            print(f"{decimal(size):>8}  {name}")
            total += size
    how = "removed" if yes else "may go; add --yes to remove it"
    print(f"{decimal(total)} of {opened.address} {how}")


def start_servers(
    *,
    prefect_port: Annotated[int, Doc("Port of the Prefect server")] = 4200,
    mlflow_port: Annotated[int, Doc("Port of the MLflow server")] = 5000,
    store: StorePlace = None,
) -> None:
    """Start the Prefect server and the MLflow server on 127.0.0.1 and serve the deployments; Ctrl-C
    stops all of it.
    """
    opened = build_store(store)
    opened.check_access()
    run_servers(opened, prefect_port, mlflow_port)


def promote_version(
    version: Annotated[str, Doc("Number of the version in the MLflow registry")],
    /,
    *,
    task: Annotated[
        str | None,
        Doc("Task of the model, where several are registered: polarity, stars or a label column"),
    ] = None,
    reason: Annotated[str, Doc("Reason to keep with the model")] = "by hand",
    store: StorePlace = None,
) -> None:
    """Make a version the champion; a run on the store's Prefect server may wait for this."""
    opened = open_store(store)
    every = list_registries(resolve_mlflow_uri(opened.root))
    found = [one for one in every if not task or one.name == name_model(task)]
    if len(found) != 1:
        tasks = ", ".join(one.task for one in every) or "none"
        raise UserError(f"name the one that is meant; models are of: {tasks}", "task", task)
    [registry] = found
    known = [one["version"] for one in registry.list_versions()]
    there = f"no such version of {registry.name}; there are {', '.join(known)}"
    require(version in known, there, "version", version)
    if servers := find_running_servers(opened.root):
        os.environ.setdefault("PREFECT_API_URL", f"{servers['prefect']}/api")
    os.environ.update(build_client_environment(opened.root))

    from amazon_electra.flows.runs.champion import approve_version

    waited = approve_version(registry, version, reason)
    about = "; the run that waited for it continues" if waited else ""
    print(f"champion is version {version}{about}")


def suggest_reviews(
    *,
    scores: Annotated[str, Doc("Folder of scores")] = "scores",
    number: Annotated[int, Doc("Of reviews")] = 200,
    random: Annotated[int | None, Doc("Draw so many by chance, to measure a model by")] = None,
    output: Annotated[
        str, Doc("File: .jsonl for doccano, .json for Label Studio")
    ] = "to_label.jsonl",
) -> None:
    """Choose reviews from a table of scores (`score --format parquet`) that the model is unsure of,
    a rare class first and none like another, and write them for a labelling tool.
    """
    from amazon_electra.beam_jobs.scoring import suggestion

    wanted = number if random is None else random
    require(wanted > 0, "give 1 or more", "number" if random is None else "random", wanted)
    rows = suggestion.suggest(scores, wanted, at_random=random is not None)
    suggestion.write_suggestions(rows, Path(output))
    print(f"{output}: {format_count(len(rows), 'review')} to label")


runs, show, prune = make_command(list_all), make_command(show_stage), make_command(prune_store)
up, promote = make_command(start_servers), make_command(promote_version)
suggest = make_command(suggest_reviews)
