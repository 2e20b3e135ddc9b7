"""A graph started from the command line: shown in this terminal, recorded by a Prefect server, or only planned."""

import argparse
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.completion import Plan
    from flows.parameters import Addition, Parameters


def add_store(command: argparse.ArgumentParser) -> None:
    default = os.environ.get("AMAZON_ELECTRA_STORE") or "store"
    command.add_argument(
        "--store", default=default, help="folder of the results (default: AMAZON_ELECTRA_STORE, or store)"
    )


def shown(form: "Parameters | Addition", run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `run` gives; it imports and calls a flow, which it may only once the server is known."""
    from flows import servers
    from flows.stages import dump
    from flows.store import Store

    store = Store(form.store)
    dump.stage(form, store)  # a mistake in the paths is told before anything is started
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    servers.end_at_signals(signal.SIGTERM)
    with servers.prefect_for(store.root) as server:
        from prefect import tags

        from flows import presentation, tasks
        from flows.deployments import TAG

        with presentation.Terminal() as terminal:
            tasks.spectators.append(terminal)
            if server:
                server.wait()
            try:
                with tags(TAG):
                    return run()
            finally:
                tasks.spectators.remove(terminal)
                servers.let_prefect_finish()


def print_stages(plan: "Plan") -> None:
    """A line per stage: complete or to do, which, and its fingerprint."""
    for stage, complete in plan.stages:
        print(f"{'complete' if complete else 'to do':<10}{stage.name:<14}{stage.fingerprint}  {stage.label}")
