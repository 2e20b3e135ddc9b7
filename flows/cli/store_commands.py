"""`amazon-electra runs`, `show`, `why`, `store verify` and `store prune`: what a store holds."""

import argparse
import json
import os

import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli.options import add_command, open_registries, open_store
from amazon_electra.flows.store.difference import find_differences
from amazon_electra.flows.store.flatten import flatten_parameters
from amazon_electra.flows.store.stage import ExistingStage
from amazon_electra.flows.store.store import Manifest, Store
from amazon_electra.flows.store.usage import (
    Run,
    list_begun_runs,
    list_prunable,
    list_runs,
    name_folder,
)
from amazon_electra.flows.ui.headlines import summarize_manifest

SHOWN = 88
"""Characters of a value that `show` prints; --json has all of it."""
MAX_DIFFERENCES = 10
"""Lines of `why`."""


def add_runs_options(runs: OptionParser) -> None:
    add_command(runs, print_runs, "List the runs of a store, oldest first.")
    runs.add_argument("--stages", action="store_true", help="list every complete stage instead")


def add_show_options(show: OptionParser) -> None:
    add_command(show, show_stage, "Show a stage: its inputs, its result and its settings.")
    show.add_argument("fingerprint", help="of a stage, or its first digits")
    show.add_argument("--json", action="store_true", help="print the whole manifest")


def add_why_options(why: OptionParser) -> None:
    add_command(
        why, print_differences, "Print the fields in which two stages, or their inputs, differ."
    )
    why.add_argument("first", help="fingerprint of a stage, or its first digits")
    why.add_argument("second", help="that of another one")


def add_store_options(store: OptionParser) -> None:
    actions = store.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "compare every file with the SHA-256 of its stage's manifest"
    add_command(
        actions.add_parser("verify", help=about),
        verify_store,
        "Read every complete stage, in a bucket too; fail if one is damaged.",
    )
    about = "remove what no kept run, study or model of the registry needs"
    prune = actions.add_parser("prune", help=about)
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
    prune.add_argument(
        "--drop",
        nargs="+",
        default=[],
        metavar="FINGERPRINT",
        help="also remove these complete stages of runs that did not end",
    )
    prune.add_argument("--yes", action="store_true", help="remove, instead of listing")


def print_runs(arguments: argparse.Namespace) -> None:
    """Print a line per run, or per stage."""
    store = open_store(arguments)
    if arguments.stages:
        for manifest in store.list_manifests():
            when = f"{manifest['finished']}  {manifest['fingerprint']}"
            cost = f"{manifest.get('seconds', 0):>9,.1f} s"
            print(f"{when}  {cost}  {manifest['title']:<36} {summarize_manifest(manifest)}")
        return
    runs, begun = list_runs(store), list(list_begun_runs(store))
    if not runs and not begun:
        print(
            f"no run yet in {store.address}; start one: amazon-electra run --store "
            f"{store.address} --dump …"
        )
    for run in runs:
        size = sum(store.place.measure(name_folder(manifest)) for manifest in run.lineage)
        print(format_run(run, size))
    for name, state in begun:
        about = "the same command continues it" if state == "killed" else ""
        print(f"{state:<10}  {name}  {about}".rstrip())


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


def print_differences(arguments: argparse.Namespace) -> None:
    """Print the fields in which two stages differ, ten at most."""
    store = open_store(arguments)
    given = arguments.first, arguments.second
    first, second = (find_stages(store, fingerprint)[0] for fingerprint in given)
    lines = find_differences(store, first, second)
    for line in lines[:MAX_DIFFERENCES] or ["nothing differs: it is the same stage"]:
        print(line)
    if len(lines) > MAX_DIFFERENCES:
        print(f"… and {len(lines) - MAX_DIFFERENCES} more")


def find_stages(store: Store, fingerprint: str) -> list[Manifest]:
    """Return the complete stages whose fingerprint begins so; a UserError if there is none."""
    if found := store.find(fingerprint):
        return found
    raise UserError(
        f"no complete stage {fingerprint} in {store.address}; "
        f"`amazon-electra runs --stages --store {store.address}` lists them"
    )


def show_stage(arguments: argparse.Namespace) -> None:
    """Print a stage: what it was made of, its result and its settings, or its manifest as JSON."""
    store = open_store(arguments)
    for manifest in find_stages(store, arguments.fingerprint):
        if arguments.json:
            print(json.dumps(manifest, indent=2, ensure_ascii=False))
        else:
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


def verify_store(arguments: argparse.Namespace) -> None:
    """Print what is damaged; a UserError where something is."""
    store = open_store(arguments)
    manifests, there = store.list_manifests(), len(store.place.list_manifests())
    damaged = there - len(manifests)  # what a manifest lacks gets a warning
    for manifest in manifests:
        stage = ExistingStage(manifest["stage"], 0, {}, known=manifest["fingerprint"])
        try:
            store.fetch(stage)
        except UserError as damage:
            print(damage)
            damaged += 1
    if damaged:
        raise UserError(f"{damaged} of {there} stages are damaged")
    print(f"{len(manifests)} stages are whole in {store.address}")


def prune_store(arguments: argparse.Namespace) -> None:
    """List what may go, or remove it."""
    store, total = open_store(arguments), 0
    registered = list[str]()
    if (store.root / "mlflow").is_dir() or os.environ.get("MLFLOW_TRACKING_URI"):
        tags = [one for registry in open_registries(arguments) for one in registry.list_tags()]
        registered = [t[name] for t in tags for name in ("encoder", "model", "report") if name in t]
    for name in list_prunable(store, arguments.keep, registered, arguments.drop):
        size = store.place.measure(name)
        if not arguments.yes or store.place.remove(name):
            print(f"{format_bytes(size):>8}  {name}")
            total += size
    if arguments.yes:
        print(f"removed {format_bytes(total)} from {store.address}")
    else:
        print(f"{format_bytes(total)} may go from {store.address}; add --yes to remove it")
