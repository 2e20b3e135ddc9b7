"""Opens MLflow's client, and says where its artifacts and pages are."""

import logging
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # the tracking tries again itself
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # commands print results

BROWSER_ADDRESS = "AMAZON_ELECTRA_MLFLOW_UI"
"""The variable with MLflow's address for browsers, where it is not the one for this process."""


def create_client(uri: str) -> Any:
    """Return MLflow's client, silenced but for warnings: the caller reports lost connections."""
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    create_database(uri)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def is_new_database(uri: str) -> bool:
    """Return whether this is an SQLite file that nobody has made yet: it takes MLflow long."""
    return uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists()


def create_database(uri: str) -> None:
    """Make a new SQLite file whole or not at all: MLflow opens no half-created one."""
    if not is_new_database(uri):
        return
    from mlflow import MlflowClient

    file = Path(uri.removeprefix("sqlite:///"))
    file.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder:
        whole = Path(folder) / file.name
        MlflowClient(tracking_uri=f"sqlite:///{whole}").search_experiments(max_results=1)
        with suppress(OSError):
            os.link(whole, file)


def hide_credentials(text: str) -> str:
    """Return text for logs and links without the names and passwords in its addresses."""
    return re.sub(r"(?<=://)[^/\s]*@", "", text)


def locate_artifacts(uri: str) -> str | None:
    """Return a folder beside an SQLite file, which has no place for artifacts; else None."""
    file = uri.removeprefix("sqlite:///")
    return (Path(file).absolute().parent / "artifacts").as_uri() if file != uri else None


def build_run_address(uri: str, experiment_id: str, run_id: str) -> str:
    """Return a run's page for a browser; empty where no server shows it, or before it exists."""
    server = os.environ.get(BROWSER_ADDRESS) or (uri if uri.startswith("http") else "")
    if not (server and experiment_id and run_id):
        return ""
    return f"{hide_credentials(server)}/#/experiments/{experiment_id}/runs/{run_id}"


if __name__ == "__main__":
    create_client(sys.argv[1])
