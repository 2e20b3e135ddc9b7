"""The results table at the end of a run, from the report's numbers."""

import json
from pathlib import Path


def print_results(folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    print(json.dumps(report, indent=1)[:2000])
