"""`amazon-electra up`, `promote`."""

import argparse
import os
from contextlib import suppress

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
from amazon_electra.flows.servers import prefect_server, settings, up


def add_up_options(up: OptionParser) -> None:
    add_command(
        up,
        start_servers,
        "Start the Prefect server and the MLflow server on 127.0.0.1 and serve the deployments; "
        "Ctrl-C stops all of it.",
    )
    up.add_argument("--prefect-port", type=int, default=4200, help="default: 4200")
    up.add_argument("--mlflow-port", type=int, default=5000, help="default: 5000")


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
    """Start the servers and wait for Ctrl-C."""
    store = build_store(arguments)
    store.check_access()
    up.run_servers(store.root, arguments.prefect_port, arguments.mlflow_port)


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
