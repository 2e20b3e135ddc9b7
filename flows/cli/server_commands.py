"""`amazon-electra up`, `status`, `down`, `announce`, `promote`, `rollback`."""

import argparse
import os
import sys
from contextlib import suppress
from typing import Any

from beam_jobs.core.errors import UserError
from flows.cli.options import add_command, build_store, find_store_root, open_registry, open_store


def add_server_commands(commands: Any) -> None:
    """Add the commands of the servers and of the registry."""
    up = add_command(
        commands,
        "up",
        start_servers,
        "start the Prefect and MLflow servers and serve the deployments",
        "Prefect server, MLflow server and the served deployments on 127.0.0.1; Ctrl-C ends all "
        "of it.",
    )
    up.add_argument("--detach", action="store_true", help="return once all is up; `down` ends it")
    up.add_argument("--prefect-port", type=int, default=4200, help="(default: 4200)")
    up.add_argument("--mlflow-port", type=int, default=5000, help="(default: 5000)")
    up.add_argument(
        "--no-password",
        action="store_true",
        help="let everybody who can log in to this machine start runs, which read and write files "
        "as you (default: where others can, the servers ask for a password, which `up` makes)",
    )
    add_command(commands, "status", print_status, "whether the servers are up and well")
    add_command(commands, "down", stop_servers, "end what `up` started")
    announce = add_command(
        commands,
        "announce",
        announce_dump,
        "tell the watcher that a dump is complete",
        "Makes the watcher look immediately and take a dump in one of its places, for example "
        "STORE/inbox.",
    )
    announce.add_argument("dump", metavar="FILE", help="the dump, or its address")
    promote = add_command(
        commands, "promote", promote_version, "make a model of the registry the champion"
    )
    promote.add_argument(
        "version", help="its number in the MLflow registry, or how its encoder's fingerprint begins"
    )
    promote.add_argument("--reason", default="by hand", help="kept with the model")
    add_command(commands, "rollback", roll_back, "make the previous champion the champion again")


def start_servers(arguments: argparse.Namespace) -> None:
    """Start the servers, here or in the background."""
    from flows.servers import access, up

    build_store(arguments).place.check_access()
    store, ports = find_store_root(arguments), (arguments.prefect_port, arguments.mlflow_port)
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
    from flows.servers import up

    if not up.print_status(find_store_root(arguments)):
        sys.exit(1)


def stop_servers(arguments: argparse.Namespace) -> None:
    """End the servers of the store."""
    from flows.servers import up

    up.stop_servers(find_store_root(arguments))


def announce_dump(arguments: argparse.Namespace) -> None:
    """Tell the Prefect server of the store that a dump is there."""
    from flows.dumps import announcement

    dump = announcement.announce_dump(find_store_root(arguments), arguments.dump)
    print(f"the watcher looks for {dump}")


def promote_version(arguments: argparse.Namespace) -> None:
    """Make a version the champion."""
    registry = open_registry(arguments)
    try:
        version = registry.resolve_version(arguments.version)
    except ValueError as unknown:
        raise UserError(str(unknown)) from None
    waited = approve_promotion(arguments, registry, version)
    print(
        f"champion is version {version}{'; the run that waited for it continues' if waited else ''}"
    )


def approve_promotion(arguments: argparse.Namespace, registry: Any, version: str) -> bool:
    """Make it the champion; return whether a run on the store's Prefect server waited for this."""
    from flows.servers import prefect_server, settings

    root = open_store(arguments).root
    with suppress(KeyError):
        os.environ.setdefault(
            "PREFECT_API_URL", f"{prefect_server.find_running_servers(root)['prefect']}/api"
        )
    os.environ.update(settings.build_client_environment(root))

    from flows.runs.champion import approve_version

    return approve_version(registry, version, arguments.reason)


def roll_back(arguments: argparse.Namespace) -> None:
    """Give the alias back to the model that the champion replaced."""
    try:
        gone, back = open_registry(arguments).rollback()
    except ValueError as nothing:
        raise UserError(str(nothing)) from None
    print(f"champion is version {back} again, instead of {gone}")
