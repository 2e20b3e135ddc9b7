"""A run of MLflow that may not exist yet, and the file that lets a later process continue it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beam_jobs.job.files import write_json

STATE_FILE = "tracking.json"


@dataclass
class TrackedRun:
    """A run whose id is known once the sender got through to create it."""

    name: str
    folder: Path | None = None
    id: str = ""
    sent: dict[str, int] = field(default_factory=dict)
    """Lines of each mirrored file that MLflow has."""
    over: bool = False
    logged: set[tuple[Path, str]] = field(default_factory=set)
    """Folders that were logged, and the names of their artifacts."""

    def save_state(self) -> None:
        """Write the state, so that a later process continues this run."""
        if self.folder and self.folder.is_dir():
            state = {"run_id": self.id, "sent": self.sent, "over": self.over}
            write_json(self.folder / STATE_FILE, state)

    def load_state(self) -> "TrackedRun":
        """Read the state of an earlier process, empty where there is none; return this run."""
        try:
            state = json.loads((self.folder / STATE_FILE).read_text()) if self.folder else {}
        except (FileNotFoundError, ValueError):
            state = {}
        self.id, self.sent = state.get("run_id", ""), state.get("sent", {})
        self.over = state.get("over", False)
        return self


def read_lines(file: Path, after: int = 0) -> list[dict[str, Any]]:
    """Return the complete lines of JSON behind the first `after`; none where there is no file."""
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[after:]]
