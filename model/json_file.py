"""A JSON file that is there whole or not at all."""

import json
from pathlib import Path
from typing import Any

from model.atomic_file import atomic_path


def write_json(path: Path, content: Any) -> None:
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
