"""What a run and the worker's run that makes its stages tell each other while both last: further
orders, and which ones are made. The Prefect server keeps it, as inputs of the worker's run.
"""

from typing import Any
from uuid import UUID

import httpx

LEAST_PAUSE, MOST_PAUSE = 0.25, 2.0
"""Seconds between two questions to the server, each of which costs it 22 ms of CPU: at first, so
that what takes seconds is soon noticed, and after half a minute.
"""


def choose_pause(waited: float) -> float:
    """Return after how many seconds to ask again what was not there for `waited` seconds."""
    return min(LEAST_PAUSE + waited / 16, MOST_PAUSE)


def post_order(client: Any, run: UUID, number: int, name: str) -> None:
    """Tell a worker's run of its next order."""
    _post(client, run, f"order-{number:06}", name)


def find_order(client: Any, run: UUID, number: int) -> str:
    """Return the name of an order of this number; empty where there is none yet."""
    return _find(client, run, f"order-{number:06}")


def post_answer(client: Any, run: UUID, number: int) -> None:
    """Tell whoever waits that the order of this number is made."""
    _post(client, run, f"made-{number:06}", "made")


def has_answer(client: Any, run: UUID, number: int) -> bool:
    """Return whether the order of this number is made."""
    return bool(_find(client, run, f"made-{number:06}"))


def _post(client: Any, run: UUID, key: str, text: str) -> None:
    try:
        client.create_flow_run_input(run, key, text)
    except httpx.HTTPStatusError as refused:
        if refused.response.status_code != httpx.codes.CONFLICT:  # else a repeated request's
            raise


def _find(client: Any, run: UUID, key: str) -> str:
    found = client.filter_flow_run_input(run, key, limit=1, exclude_keys=set())
    return str(found[0].value) if found else ""
