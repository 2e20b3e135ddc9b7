"""Reads what the card of a published encoder says: licence, training data, languages. Imports no
torch.
"""

from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.nesting import load_json
from amazon_electra.model.yaml_text import load_yaml

UNKNOWN = "unknown"


def read_json(file: Path) -> Any:
    """Return the content of a file; an empty object where there is no file."""
    return load_json(file.read_text(encoding="utf-8")) if file.is_file() else {}


def read_card(folder: Path) -> dict[str, str]:
    """Return `license`, `training_data` and `languages` of a published encoder, each "unknown"
    where nothing says it.

    They stand in the YAML at the beginning of README.md, as on the hub. sentence-transformers lists
    what it trained on in data_config.json besides, which may name more; of many files in one folder
    there the folder is named.
    """
    metadata = _read_front_matter(folder / "README.md")
    datasets = metadata.get("datasets") or []
    named = [str(one) for one in (datasets if isinstance(datasets, list) else [datasets])]
    try:
        listed = read_json(folder / "data_config.json")
    except ValueError:
        listed = None
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict) and entry.get("name"):
            named.append(str(entry["name"]).partition("/")[0].partition(".")[0])
    return {
        "license": _join(metadata.get("license") or metadata.get("license_name")),
        "training_data": _join(list(dict.fromkeys(named))),
        "languages": _join(metadata.get("language")),
    }


def _read_front_matter(file: Path) -> dict[str, Any]:
    text = file.read_text("utf-8", errors="replace") if file.is_file() else ""
    parts = text.split("---\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return {}
    try:
        metadata = load_yaml(parts[1])
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _join(value: Any) -> str:
    values = value if isinstance(value, list) else [value] if value else []
    return ", ".join(str(one) for one in values) or UNKNOWN
