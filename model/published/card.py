"""Reads what is known of a published model: from its model card what it may be used for and what
it was trained on, and all of it from the origin.json of a folder that model.origin wrote.
"""

import json
from pathlib import Path
from typing import Any

ABOUT = "origin.json"
UNKNOWN = "unknown"
MARK = "---"


def read_origin(folder: Path) -> dict[str, Any]:
    """Return the origin.json of a folder; empty where there is none."""
    file = folder / ABOUT
    about: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return about


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
