"""`amazon-electra up`, `status`, `down`, `announce`, `promote`."""

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.settings import OptionParser
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.cli.options import (
    add_command,
    add_task_option,
    build_store,
    open_registry,
    open_store,
)
from amazon_electra.flows.servers import access, prefect_server, settings, up

WATCHER = "watch-dumps/watch-dumps"
"""Deployment of the flow that looks for new dumps."""


def add_up_options(up: OptionParser) -> None:
    add_command(
        up,
        start_servers,
        "Start the Prefect server and the MLflow server on 127.0.0.1 and serve the deployments; "
        "Ctrl-C stops all of it.",
    )
    up.add_argument("--detach", action="store_true", help="return once all is up; `down` stops it")
    up.add_argument("--prefect-port", type=int, default=4200, help="default: 4200")
    up.add_argument("--mlflow-port", type=int, default=5000, help="default: 5000")
    up.add_argument(
        "--no-password",
        action="store_true",
        help="let every account and program on this machine start runs, which read and write files "
        "as you, and change what MLflow keeps (default: both servers ask for a password, which "
        "`up` makes and the commands find)",
    )


def add_status_options(status: OptionParser) -> None:
    add_command(status, print_status)


def add_down_options(down: OptionParser) -> None:
    add_command(down, stop_servers)


def add_announce_options(announce: OptionParser) -> None:
    add_command(
        announce,
        announce_dump,
        "Make the watcher look at once and take a dump in one of its places, for example "
        "STORE/inbox.",
    )
    announce.add_argument("dump", metavar="FILE", help="path or address of the dump")


def add_promote_options(promote: OptionParser) -> None:
    add_command(promote, promote_version)
    add_task_option(promote)
    promote.add_argument(
        "version",
        help="version number in the MLflow registry, or first digits of the encoder's fingerprint",
    )
    promote.add_argument(
        "--reason", default="by hand", help="reason to keep with the model (default: by hand)"
    )


def start_servers(arguments: argparse.Namespace) -> None:
    """Start the servers, here or in the background."""
    build_store(arguments).place.check_access()
    store, ports = build_store(arguments).root, (arguments.prefect_port, arguments.mlflow_port)
    access.prepare_passwords(store, arguments.no_password)
    if not arguments.detach:
        up.run_servers(store, *ports)
        return
    words = ["--store", str(store)]
    words += ["--prefect-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    words += ["--no-password"] if arguments.no_password else []
    up.start_detached(store, words)


def print_status(arguments: argparse.Namespace) -> None:
    """Print how the servers are; exit code 1 where they are not well."""
    if not up.print_status(build_store(arguments).root):
        sys.exit(1)


def stop_servers(arguments: argparse.Namespace) -> None:
    """End the servers of the store."""
    up.stop_servers(build_store(arguments).root)


def announce_dump(arguments: argparse.Namespace) -> None:
    """Start a run of the watcher that looks at once and takes this dump, which is whole.

    The server is the one of PREFECT_API_URL, else the one that is up for the store.
    """
    given, store = arguments.dump, build_store(arguments).root
    address = given if storage.is_remote(given) else str(Path(given).expanduser().resolve())
    if not storage.is_remote(address) and not os.path.isfile(address):
        raise UserError(f"announce {given}: no such file")
    url = os.environ.get("PREFECT_API_URL")
    if not url and (servers := prefect_server.find_running_servers(store)):
        url = f"{servers['prefect']}/api"
    if not url:
        raise UserError(
            f"no server is up to announce {given} to; start one with "
            "`amazon-electra up`, or set PREFECT_API_URL",
            "store",
            store,
        )
    os.environ.update(settings.build_client_environment(store, url))
    from prefect.deployments import run_deployment  # reads the environment when it is imported
    from prefect.exceptions import ObjectNotFound

    try:
        run_deployment(WATCHER, parameters={"announced": address}, timeout=0, as_subflow=False)
    except ObjectNotFound:
        raise UserError(
            f"announce {given}: the Prefect server at {url} has no deployment {WATCHER}; "
            "start `amazon-electra up`, or run deploy/deployments.sh"
        ) from None
    print(f"the watcher looks for {address}")


def promote_version(arguments: argparse.Namespace) -> None:
    """Make a version the champion; a run on the store's Prefect server may wait for this."""
    registry = open_registry(arguments)
    try:
        version = registry.resolve_version(arguments.version)
    except ValueError as unknown:
        raise UserError(str(unknown)) from None
    root = open_store(arguments).root
    with suppress(KeyError):
        os.environ.setdefault(
            "PREFECT_API_URL", f"{prefect_server.find_running_servers(root)['prefect']}/api"
        )
    os.environ.update(settings.build_client_environment(root))

    from amazon_electra.flows.runs.champion import approve_version

    waited = approve_version(registry, version, arguments.reason)
    about = "; the run that waited for it continues" if waited else ""
    print(f"champion is version {version}{about}")
