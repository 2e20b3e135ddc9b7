"""`python -m amazon_electra.flows.runs.serve STORE` serves the deployments; `amazon-electra up`
starts it.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from prefect.exceptions import TerminationSignal
from prefect.runner import Runner

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.flows.servers.settings import READY_FILE
from amazon_electra.flows.ui import automations
from amazon_electra.flows.ui.deployments import build_deployments


def serve_deployments(store: Path) -> None:
    """Serve until stopped; each flow run is a process of its own."""
    runner = Runner(name="amazon-electra", pause_on_shutdown=False)
    for deployment in build_deployments(store):
        runner.add_deployment(deployment)
    automations.create_automations()
    (store / READY_FILE).parent.mkdir(parents=True, exist_ok=True)
    (store / READY_FILE).touch()
    with suppress(KeyboardInterrupt, TerminationSignal):
        asyncio.run(runner.start())


if __name__ == "__main__":
    try:
        serve_deployments(Path(sys.argv[1]).resolve())
    except UserError as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        sys.exit(2)
