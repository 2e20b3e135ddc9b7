"""A JSON file that is there whole or not at all."""

import json
import os
import time
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> None:
    """Appears whole or not at all, also through a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
