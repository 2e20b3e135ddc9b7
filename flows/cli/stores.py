"""What several commands share: the store, the registry in it, and short names of settings."""

import os
from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import UserError

if TYPE_CHECKING:  # `--help` needs neither
    from amazon_electra.flows.store.store import Store
    from amazon_electra.model.tracking.registry import Registry

StorePlace = Annotated[
    str | None,
    Doc(
        "Folder of the results, or s3://BUCKET/FOLDER or gs://BUCKET/FOLDER; none: "
        "AMAZON_ELECTRA_STORE, else store"
    ),
]
TaskName = Annotated[
    str | None,
    Doc("Task of the model, where several are registered: polarity, stars or a label column"),
]
DryRun = Annotated[bool, Doc("Print what would be made of what, and which stages are complete")]
SHORT = {
    "dump.paths": "--dump",
    "dump.columns": "--columns",
    "dump.labels": "--label",
    "dump.stars_scale": "--stars-scale",
    "pretraining.start_from": "--start-from",
    "finetuning.target_accuracy": "--target-accuracy",
    "finetuning.classes": "--classes",
    "dump.id": "--id",
    "scores.format": "--format",
}
"""Short names of settings, by path."""


def require_dump(given: dict[str, Any]) -> None:
    """Raise UserError where no dump is named."""
    if not given.get("dump", {}).get("paths"):
        raise UserError(
            "name the files of your reviews, or sample:20000 for synthetic ones", "dump.paths"
        )


def build_store(place: object = None, is_dry: bool = False) -> "Store":
    """Return the store, which need not be there yet; `is_dry`: nothing is written there."""
    from amazon_electra.flows.store.store import Store

    return Store(str(place or os.environ.get("AMAZON_ELECTRA_STORE") or "store"), is_dry)


def open_store(place: str | None) -> "Store":
    """Return the store; a UserError where there is none."""
    import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class

    store = build_store(place)
    store.check_access(writes=False)
    return store


def open_registries(store: "Store") -> "list[Registry]":
    """Return the registered models of all tasks in the store's MLflow."""
    from amazon_electra.flows.servers.stock import resolve_mlflow_uri
    from amazon_electra.model.tracking.registry import list_registries

    return list_registries(resolve_mlflow_uri(store.root))


def open_registry(store: "Store", task: str | None) -> "Registry":
    """Return the registered model of a task; of the only task without a name."""
    from amazon_electra.model.tracking.registry import name_model

    every = open_registries(store)
    found = [one for one in every if not task or one.name == name_model(task)]
    if len(found) == 1:
        return found[0]
    tasks = ", ".join(one.task for one in every) or "none; a run registers its models"
    raise UserError(f"name the one that is meant; models are registered of: {tasks}", "task", task)
