"""The log of the run that calls."""

import logging
from typing import Any


def find_run_logger() -> Any:
    """Return Prefect's logger of this run; outside of a run the logger `amazon_electra`."""
    from prefect.exceptions import MissingContextError
    from prefect.logging import get_run_logger

    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("amazon_electra")
