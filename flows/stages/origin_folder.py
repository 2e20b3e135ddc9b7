"""Where a published encoder lies once its stage is made, and what is known of it."""

import json
from pathlib import Path
from typing import Any

from flows.store.store import Stage, Store

ENCODER = "encoder"
"""Folder of the encoder in that of its stage, which has the job's log too."""
MODEL_TYPE = "model_type"
"""Of a published encoder, where it is known before it is loaded."""
TITLE = "origin "
UNKNOWN = "unknown"


def locate_origin(store: Store, origin: Stage) -> Path:
    """Return the transformers folder of a loaded encoder."""
    return store.fetch(origin) / ENCODER


def open_vocabulary(store: Store, vocabulary: Stage, on_engine: bool = False) -> str:
    """Return where a job reads a vocabulary; a kept one lies with its encoder."""
    place = store.open_input(vocabulary, on_engine)
    return f"{place}/{ENCODER}" if vocabulary.name == "origin" else place


def get_name(origin: Stage) -> str:
    """Return what reports call a published encoder."""
    return origin.label.removeprefix(TITLE)


def read_origin(store: Store, origin: Stage) -> dict[str, Any]:
    """Return what is known of a loaded encoder: licence, training data, shape, where it is from."""
    file = locate_origin(store, origin) / "origin.json"
    told: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return {"license": UNKNOWN, "training_data": UNKNOWN, **told, "name": get_name(origin)}
