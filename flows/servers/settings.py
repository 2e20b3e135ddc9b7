"""Settings and names that the servers, their clients and the automations share."""

from pathlib import Path

HOST = "127.0.0.1"
TAG = "amazon-electra"
"""Tag of every run of ours, by which the automations know them on a shared server."""
PAUSED_EVENT = "amazon-electra.run.paused"
"""Last event of a run's process that leaves it suspended."""
READY_FILE = Path("logs", "deployments.ready")
"""File in the store that is there once the deployments are served."""

HEARTBEAT_SECONDS = 30
"""Time between two heartbeats of a flow run; Prefect's default is 180, its minimum is 30."""
LOST_SECONDS = 900
"""A run without a heartbeat for so long is marked Crashed: longer than the eight minutes for which
a run outlives a server that is away, so that none is taken for lost when it comes back.
"""

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


SERVER = {
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage"
    ".filesystem",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",
}
"""Environment of Prefect's server. Leases in its memory would leave the accelerator taken for ever
after a restart in the middle of a training. The new UI asks a third party for its settings.
"""


def build_client_environment(store: Path, api_url: str = "") -> dict[str, str]:
    """Return the environment of every process of a run."""
    url = {"PREFECT_API_URL": api_url} if api_url else {}
    return {**NO_TELEMETRY, **CLIENT, "PREFECT_HOME": str(store / "prefect"), **url}
