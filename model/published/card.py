"""Reads from a model card what a published model may be used for and what it was trained on."""

from pathlib import Path
from typing import Any

UNKNOWN = "unknown"
MARK = "---"


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
