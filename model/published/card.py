"""Reads what is known of a published model: from its model card what it may be used for and what
it was trained on, and all of it from the origin.json of a folder that model.origin wrote.
"""

import json
from pathlib import Path
from typing import Any

from model.published.architecture import TRAINED_LENGTH

ABOUT = "origin.json"
UNKNOWN = "unknown"
MARK = "---"


def read_origin(folder: Path) -> dict[str, Any]:
    """Return the origin.json of a folder; empty where there is none."""
    return _read_json(folder / ABOUT)


def describe_start(folder: Path) -> dict[str, Any]:
    """Return what is known of start weights, by origin.json, or else by the model card and the
    config.json beside them; google's checkpoints have neither.

    What model.pretrain made of a published encoder is known as that one, `through` names its
    folder; what it made of nothing has `through` alone.
    """
    if about := read_origin(folder):
        return about
    config = _read_json(folder / "config.json")
    if TRAINED_LENGTH in config:
        began: dict[str, Any] = _read_json(folder.parent / "config.json").get("start") or {}
        return {**began, "through": str(folder)}
    return {
        "name": folder.resolve().name,
        "place": str(folder),
        "kind": config.get("model_type", "electra"),
        **read_card(folder),
    }


def _read_json(file: Path) -> dict[str, Any]:
    """Return a file's object; empty where there is no file."""
    told: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return told


def read_card(folder: Path) -> dict[str, str]:
    """Return `license` and `training_data` of a model card, each "unknown" where it says nothing.

    They stand in the YAML at the beginning of README.md, as on the hub.
    """
    told = _read_front_matter(folder / "README.md")
    return {
        "license": _join(told.get("license") or told.get("license_name")),
        "training_data": _join(told.get("datasets")),
    }


def _read_front_matter(file: Path) -> dict[str, Any]:
    import yaml

    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    parts = text.split(f"{MARK}\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return {}
    try:
        told = yaml.safe_load(parts[1])
    except yaml.YAMLError:
        return {}
    return told if isinstance(told, dict) else {}


def _join(value: Any) -> str:
    values = value if isinstance(value, list) else [value] if value else []
    return ", ".join(str(one) for one in values) or UNKNOWN
