"""Makes one stage: `python -m amazon_electra.flows.run_stage STORE STAGE/FINGERPRINT`.

The run that wants the stage writes its request, `stage.json`, into the stage's folder and starts
this in a child process; a person who debugs types the same line. The manifest is the run's to
write. stdout gets the result as JSON.
"""

import argparse
import json
from typing import Any

import amazon_electra.flows.stages.all  # noqa: F401 - each module adds its class
from amazon_electra.beam_jobs.core.command import main
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.store.place import REQUEST
from amazon_electra.flows.store.stage import Stage, read_request
from amazon_electra.flows.store.store import Store


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Make the stage that the arguments name; return its result."""
    parser = argparse.ArgumentParser(
        prog="python -m amazon_electra.flows.run_stage", description=__doc__
    )
    parser.add_argument("store", help="folder or address of the store")
    parser.add_argument("stage", help="STAGE/FINGERPRINT, a folder of the store with a stage.json")
    given = parser.parse_args(argv)
    store = Store(given.store)
    stage = load_stage(store, given.stage)
    with store.place.pin():
        return stage.run(store, store.folder(stage))


def load_stage(store: Store, path: str) -> Stage:
    """Return the stage of a folder, `STAGE/FINGERPRINT`, by the request that lies there."""
    file = store.root / path / REQUEST
    if not file.is_file():
        raise UserError(f"{file} is not there; a run writes it when it begins the stage")
    try:
        return read_request(json.loads(file.read_text(encoding="utf-8")), path)
    except ValueError as wrong:
        raise UserError(f"{file}: {wrong}") from None


if __name__ == "__main__":
    main(run)
