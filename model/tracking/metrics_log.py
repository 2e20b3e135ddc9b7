"""metrics.jsonl, one JSON line per logged step; MLflow and the report show what it says."""

import json
import math
import time
from contextlib import suppress
from pathlib import Path

from amazon_electra.beam_jobs.core.files import atomic_path

FILE_NAME = "metrics.jsonl"


class MetricsLog:
    """Appends to <folder>/metrics.jsonl; a resumed run first cuts what is after its checkpoint."""

    def __init__(self, folder: Path, after_step: int | None = None) -> None:
        """Open the log; `after_step` is the step resumed from, None starts an empty one."""
        self._path = Path(folder) / FILE_NAME
        self._path.parent.mkdir(parents=True, exist_ok=True)
        known = [] if after_step is None else read_metrics(folder)
        kept = [json.dumps(line) + "\n" for line in known if line["step"] <= (after_step or 0)]
        with atomic_path(self._path) as temporary:
            temporary.write_text("".join(kept), encoding="utf-8")

    def log(self, step: int, **numbers: float) -> None:
        """Append the finite ones of the numbers as the line of a step."""
        finite = {name: n for name, n in numbers.items() if math.isfinite(n)}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, "time": time.time(), **finite}) + "\n")


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """Return the lines logged so far, without a last line that a kill cut short."""
    path, lines = Path(folder) / FILE_NAME, []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            lines.append(json.loads(text))
    return lines
