"""What the last run of a store left: where nothing has changed since, the same run has nothing to
make, to register or to send, and needs neither Prefect nor MLflow.
"""

import json
import os
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.flows.configuration.form import Promotion
from amazon_electra.flows.servers import mlflow_server
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store

FILE = Path("runs", "finished.json")


def describe_tracking(store: Store) -> list[Any]:
    """Return MLflow's address, size and time of change, where it is a file; else an empty list."""
    uri = mlflow_server.resolve_mlflow_uri(store.root)
    database = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or not database.is_file():
        return []
    state = database.stat()
    return [uri, state.st_size, state.st_mtime_ns]


def save_finished(store: Store, report: Stage, promotion: Promotion, registered: str) -> None:
    """Record a run that has sent all to MLflow."""
    content = {
        "report": report.path,
        "promotion": promotion.model_dump(),
        "registered": registered,
        "tracking": describe_tracking(store),
    }
    write_json(store.root / FILE, content)


def read_finished(store: Store, promotion: Promotion) -> dict[str, Any]:
    """Return the record of the last run (`save_finished`); empty where it had another promotion, a
    server shows the runs of this store, or MLflow's file was written since.
    """
    if os.environ.get("PREFECT_API_URL"):
        return {}
    try:
        found = dict(json.loads((store.root / FILE).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}
    now = {"promotion": promotion.model_dump(), "tracking": describe_tracking(store)}
    is_same = now["tracking"] and all(found.get(name) == value for name, value in now.items())
    return found if is_same else {}
