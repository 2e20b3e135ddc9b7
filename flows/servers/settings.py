"""Settings and names that the servers, their clients and the automations share."""

from pathlib import Path

HOST = "127.0.0.1"
TAG = "amazon-electra"  # of every run of ours, by which the automations know them
PAUSED_EVENT = "amazon-electra.run.paused"  # last event of a run's process that leaves it suspended
READY_FILE = Path("logs", "deployments.ready")  # of the store: the deployments are served

HEARTBEAT_SECONDS = 30
LOST_SECONDS = 900
"""A run without a heartbeat for so long is marked Crashed: longer than the eight minutes for which
a run outlives a server that is away.
"""

NO_TELEMETRY = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}
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
"""Eight retries wait for 2 + 4 + … + 256 s. Runs import no code of the folder they are started in,
and keep no results in Prefect, which would read them as code.
"""


def build_client_environment(store: Path, api_url: str = "") -> dict[str, str]:
    """Return the environment of every process of a run."""
    url = {"PREFECT_API_URL": api_url} if api_url else {}
    return {**NO_TELEMETRY, **CLIENT, "PREFECT_HOME": str(store / "prefect"), **url}
