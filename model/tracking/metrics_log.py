"""metrics.jsonl, one JSON line per logged step; MLflow and the report show what it says."""

import json
import math
import time
from pathlib import Path

from amazon_electra.beam_jobs.core.files import atomic_path

FILE_NAME = "metrics.jsonl"


class MetricsLog:
    """Appends to <folder>/metrics.jsonl; a resumed run first cuts what is after its checkpoint."""

    def __init__(self, folder: Path, after_step: int | None = None) -> None:
        """Open the log; `after_step` is the step resumed from, None starts an empty one."""
        self._path = Path(folder) / FILE_NAME
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = (
            []
            if after_step is None
            else [line for line in read_metrics(folder) if line["step"] <= after_step]
        )
        with atomic_path(self._path) as temporary:
            temporary.write_text(
                "".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8"
            )

    def log(self, step: int, **numbers: float) -> None:
        """Append the finite ones of the numbers as the line of a step."""
        finite = {name: n for name, n in numbers.items() if math.isfinite(n)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **finite}) + "\n")


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """Return the lines logged so far, without a last line that a kill cut short."""
    path = Path(folder) / FILE_NAME
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines
