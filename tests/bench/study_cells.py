"""What a study costs beside the work of its cells: `python tests/bench/study_cells.py [--json]`.

Three cells are really fine-tuned (three arms, one seed); what they left is then published under the
other seeds. Two runs of the whole study find every cell: the first mirrors them all into MLflow and
writes the report, the second finds that too. What either takes beside the report's own job, its
cells excepted, is the overhead of the runner.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ARMS = 3
STEPS = {"n_train": 24, "n_dev": 20, "n_test": 40, "learning_rates": [1e-3], "max_length": 32}


def describe_study(folder: Path, seeds: int) -> dict[str, Any]:
    """Return a study of a tiny encoder with as many seeds, in three arms."""
    encoder = str(folder / "electra")
    arms = [
        {"name": f"{epochs} epochs", "encoder": encoder, "settings": {"epochs": epochs}}
        for epochs in range(1, ARMS + 1)
    ]
    tasks = [{"task": "polarity", "data": str(folder / "corpus")}]
    seeded = {"title": f"{seeds} seeds", "seeds": list(range(seeds))}
    return {**seeded, "arms": arms, "tasks": tasks, "settings": STEPS}


def publish_copies(folder: Path, store_root: Path, seeds: int) -> None:
    """Publish what the cells of the first seed left as the cells of the others."""
    from flows.runner.store import MANIFEST, Store
    from flows.studies.study_stages import StudyStages
    from tests.flows.studies.loaded import load_content

    store = Store(store_root)
    loaded = load_content(describe_study(folder, seeds), store_root)
    cells = StudyStages(loaded, {}, store).cells
    first = {cell.arm.name: cell for cell in cells if cell.seed == 0}
    skipped = shutil.ignore_patterns(MANIFEST, "tracking.json", "checkpoints")
    for cell in cells:
        for role in ("finetuned", "evaluated"):
            source, target = getattr(first[cell.arm.name], role), getattr(cell, role)
            if cell.seed:
                shutil.copytree(store.folder(source), store.folder(target), ignore=skipped)
                store.publish(target, (store.manifest(source) or {})["result"])


def measure(folder: Path, cells: int) -> dict[str, Any]:
    """Return the seconds of the two runs, in a process that has a Prefect server already."""
    from flows.configuration.study_file import Study, StudyChoice
    from flows.runner.store import Store
    from flows.servers import prefect_server
    from tests.model.corpora import write_corpus, write_electra

    write_corpus(folder / "corpus", reviews=400)
    write_electra(folder / "electra")
    store, seeds, seconds = folder / "store", cells // ARMS, []
    with prefect_server.connect_prefect(store) as server:
        if server:
            server.wait()
        from flows.study import study

        for many in (1, seeds, seeds):
            own = Study.model_validate(describe_study(folder, many))
            began = time.monotonic()
            study(study=StudyChoice(own=own), store=str(store))
            seconds.append(time.monotonic() - began)
            if many == 1:
                publish_copies(folder, store, seeds)
        prefect_server.flush_prefect()
    found = [m for m in Store(store).list_manifests() if m["stage"] == "study"]
    report = max(found, key=lambda manifest: len(manifest["inputs"]))["seconds"]
    return {
        "cells": seeds * ARMS,
        "first_run_seconds": round(seconds[1], 2),
        "of_which_report_seconds": round(report, 2),
        "first_run_seconds_a_cell": round((seconds[1] - report) / (seeds * ARMS), 3),
        "repeated_run_seconds": round(seconds[2], 2),
        "repeated_run_seconds_a_cell": round(seconds[2] / (seeds * ARMS), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=99, help="of the study (default: 99)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), chosen.cells)
    print(
        json.dumps(found)
        if chosen.json
        else "\n".join(f"{name:<28}{value}" for name, value in found.items())
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent.parent))
    main()
