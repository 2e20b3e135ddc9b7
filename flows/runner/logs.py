"""The log of the run that calls, and logs/failures.log of the store: a line per run that failed or
crashed, for whoever looks after the machine.
"""

import logging
import time
from typing import Any, TypedDict

from beam_jobs.core.errors import UserError
from flows.store.store import Store


def find_run_logger() -> Any:
    """Return Prefect's logger of this run; outside of a run the logger `amazon_electra`."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("amazon_electra")


def log_failure(flow: Any, flow_run: Any, state: Any) -> None:
    """Log time, run and cause of a failed flow run in one line: a hook, whose arguments Prefect
    gives by these names.
    """
    try:
        log = (
            Store((flow_run.parameters or {}).get("store") or "store").root
            / "logs"
            / "failures.log"
        )
    except UserError:  # what failed is the store: there is no place for a log
        return
    cause = " ".join(
        (state.message or "").removeprefix("Flow run encountered an exception: ").split()
    )
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a", encoding="utf-8") as lines:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        lines.write(f"{when}  {flow_run.name} ({flow_run.id}): {state.name}: {cause}\n")


class FailureHooks(TypedDict):
    on_failure: list[Any]
    on_crashed: list[Any]


FAILURE_HOOKS: FailureHooks = {"on_failure": [log_failure], "on_crashed": [log_failure]}
"""For `@flow(**FAILURE_HOOKS)`."""
