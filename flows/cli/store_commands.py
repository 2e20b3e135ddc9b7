"""`amazon-electra runs`, `show` and `prune`: what a store holds."""

import argparse
import os

import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli.options import add_command, open_registries, open_store
from amazon_electra.flows.store.flatten import flatten_parameters, summarize_manifest
from amazon_electra.flows.store.store import Manifest, Store
from amazon_electra.flows.store.usage import (
    Run,
    list_living_runs,
    list_prunable,
    list_runs,
    name_folder,
)

SHOWN = 88
"""Characters of a value that `show` prints; manifest.json has all of it."""


def add_runs_options(runs: OptionParser) -> None:
    add_command(runs, print_runs, "List the runs of a store, oldest first.")
    runs.add_argument("--stages", action="store_true", help="list every complete stage instead")


def add_show_options(show: OptionParser) -> None:
    add_command(show, show_stage, "Show a stage: its inputs, its result and its settings.")
    show.add_argument("fingerprint", help="of a stage, or its first digits")


def add_prune_options(prune: OptionParser) -> None:
    add_command(
        prune,
        prune_store,
        "List unfinished stages and stages of runs that are not kept; remove them with --yes. "
        "Stages that are being made stay, and those of runs that did not end.",
    )
    prune.add_argument(
        "--keep",
        nargs="+",
        default=[],
        metavar="FINGERPRINT",
        help="keep only these runs and studies, and the registry's models (default: every run)",
    )
    prune.add_argument("--yes", action="store_true", help="remove, instead of listing")


def print_runs(arguments: argparse.Namespace) -> None:
    """Print a line per run, or per stage."""
    store = open_store(arguments)
    if arguments.stages:
        for manifest in store.list_manifests():
            path = f"{manifest['stage']}/{manifest['fingerprint']}"
            when = f"{manifest['finished']}  {path:<36}"
            cost = f"{manifest.get('seconds', 0):>9,.1f} s"
            print(f"{when}  {cost}  {manifest['title']:<36} {summarize_manifest(manifest)}")
        return
    runs, living = list_runs(store), list_living_runs(store)
    if not runs and not living:
        print(
            f"no run yet in {store.address}; start one: amazon-electra run --store "
            f"{store.address} --dump …"
        )
    for run in runs:
        size = sum(store.measure(name_folder(manifest)) for manifest in run.lineage)
        print(format_run(run, size))
    for name in living:
        print(f"running     {name}")


def format_run(run: Run, size: int) -> str:
    """Return when, fingerprint, state, size, dump, recipe and result of a run, in one line."""
    last = run.last
    recipe = run.find_value("pretraining", "parameters", "recipe")
    answer = last["result"].get("answer") if last["stage"] in ("report", "study") else ""
    about = " ".join(str(answer or summarize_manifest(last)).split())
    columns = [
        f"{last['finished']}  {last['fingerprint']}  {run.state:<10}  {format_bytes(size):>8}",
        f"{run.find_value('dump', 'result', 'name'):<20}",
        f"{recipe:<11}",
        f"{last['stage']}: {about}",
    ]
    return "  ".join(columns)


def format_bytes(size: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def show_stage(arguments: argparse.Namespace) -> None:
    """Print a stage: what it was made of, its result and its settings."""
    store = open_store(arguments)
    if not (found := store.find(arguments.fingerprint)):
        raise UserError(
            f"no complete stage {arguments.fingerprint} in {store.address}; "
            f"`amazon-electra runs --stages --store {store.address}` lists them"
        )
    for manifest in found:
        print("\n".join(format_stage(store, manifest)))


def format_stage(store: Store, manifest: Manifest) -> list[str]:
    """Return a line for each stage of the lineage, then for each value of result and settings."""
    lines = [
        f"{'   ' * depth}{origin['title']}  {origin['fingerprint']}  {origin['finished']}"
        for depth, origin in store.trace_lineage(manifest)
    ]
    lines[0] += f"  {store.address}/{name_folder(manifest)}"
    for title, part in (("result", "result"), ("settings", "parameters")):
        values = flatten_parameters(manifest[part]).items()
        lines += [f"{title:<10}{name} {value[:SHOWN]}" for name, value in values]
    return lines


def prune_store(arguments: argparse.Namespace) -> None:
    """List what may go, or remove it."""
    store, total = open_store(arguments), 0
    registered = list[str]()
    if (store.root / "mlflow").is_dir() or os.environ.get("MLFLOW_TRACKING_URI"):
        tags = [one for registry in open_registries(arguments) for one in registry.list_tags()]
        registered = [t[name] for t in tags for name in ("encoder", "model", "report") if name in t]
    for name in list_prunable(store, arguments.keep, registered):
        size = store.measure(name)
        if not arguments.yes or store.remove(name):
            print(f"{format_bytes(size):>8}  {name}")
            total += size
    if arguments.yes:
        print(f"removed {format_bytes(total)} from {store.address}")
    else:
        print(f"{format_bytes(total)} may go from {store.address}; add --yes to remove it")
