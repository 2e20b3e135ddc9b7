"""Settings and names that the servers, their clients and the automations share."""

import json
import os
import secrets
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import UserError

HOST = "127.0.0.1"
TAG = "amazon-electra"
"""Tag of every run of ours, by which the automations know them on a shared server."""
PART_FLOW = "run-stage"
"""Flow of the runs that make stages of another run."""
DUMP_EVENT = "reviews.dump.arrived"
"""Event that makes the watcher look at once; a storage notification or a webhook emits it."""
PAUSED_EVENT = "amazon-electra.run.paused"
"""Last event of a run's process that leaves it suspended."""
ADMIN_VARIABLE = "AMAZON_ELECTRA_PREFECT_ADMIN"
"""Environment variable with the word by which the Prefect server knows an administrator."""
ADMIN_HEADER = "Amazon-Electra-Administrator"
READY_FILE = Path("logs", "deployments.ready")
"""File in the store that is there once the deployments are served."""

HEARTBEAT_SECONDS = 30
"""Time between two heartbeats of a flow run; Prefect's default is 180, its minimum is 30."""
LOST_SECONDS = 900
"""A run without a heartbeat for so long is marked Crashed: longer than the eight minutes for which
a run outlives a server that is away, so that none is taken for lost when it comes back.
"""
LOST_PART_SECONDS = 4 * HEARTBEAT_SECONDS
"""The same for a run that makes a stage of another one, which then has another worker make it."""

NO_TELEMETRY = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}
"""Environment under which nothing of this project calls home."""
CLIENT = {
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_TASKS_DEFAULT_PERSIST_RESULT": "false",
    "PREFECT_API_REQUEST_TIMEOUT": "20",
    "PREFECT_CLIENT_MAX_RETRIES": "8",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
    "PYTHONSAFEPATH": "1",
}
"""Environment of Prefect's clients. Eight retries wait for 2 + 4 + … + 256 s: a run outlives a
server that is away for eight minutes. Runs import no code of the folder they are started in, and
keep no results in Prefect, which would read them as code.
"""


def build_client_environment(store: Path, api_url: str = "") -> dict[str, str]:
    """Return the environment of every process of a run."""
    url = {"PREFECT_API_URL": api_url} if api_url else {}
    return {**NO_TELEMETRY, **CLIENT, "PREFECT_HOME": str(store / "prefect"), **url}


def build_admin_environment() -> dict[str, str]:
    """Return the environment of a Prefect server and of those who set its deployments: the word of
    AMAZON_ELECTRA_PREFECT_ADMIN, or a new one that only these processes know.
    """
    word = os.environ.get(ADMIN_VARIABLE) or secrets.token_hex(32)
    headers = json.loads(os.environ.get("PREFECT_CLIENT_CUSTOM_HEADERS") or "{}")
    headers[ADMIN_HEADER] = word
    return {ADMIN_VARIABLE: word, "PREFECT_CLIENT_CUSTOM_HEADERS": json.dumps(headers)}


def read_run_limit() -> int:
    """Return how many runs `up` has at once: AMAZON_ELECTRA_RUNS_AT_ONCE, or 16.

    Runs that wait for the accelerator count, so the limit leaves room for the watcher. One that
    waits is an idle process of 230 MB, 170 of them its own (ps, Prefect 3.8 on Linux).
    """
    given = os.environ.get("AMAZON_ELECTRA_RUNS_AT_ONCE") or "16"
    if not given.isdecimal() or not int(given):
        raise UserError(
            f"AMAZON_ELECTRA_RUNS_AT_ONCE is {given!r}: write a number of runs, for example 16"
        )
    return int(given)
