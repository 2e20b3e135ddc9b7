"""Data and models made elsewhere: a file, a folder, or a name on the hub."""

import json
from pathlib import Path

from amazon_electra.beam_jobs.core.files import hash_bytes
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store

INCIDENTAL = {"log.txt", "metrics.jsonl", "manifest.json", "stage.json", "README.md"}
"""Files that say how a folder came about, not what it holds."""


class ExternalConfig(Settings):
    """What was made elsewhere, by its name on the hub or by the digest of its files."""

    name: str = ""
    content: str = ""


class External(Stage):
    """A file, a folder or a name on the hub; there is nothing to make. `result` has the path."""

    name, version, Config = "external", 2, ExternalConfig
    has_job = False

    def locate(self, store: Store, on_engine: bool = False) -> str:
        return str(self.result["path"])


def build_external_stage(place: str, store: Store) -> External:
    """Return the stage of a file, a folder or a name on the hub."""
    path = Path(place).expanduser()
    if not path.exists():
        return External(ExternalConfig(name=place), result={"path": place})
    digests = {
        "" if file == path else str(file.relative_to(path)): store.digest(file)
        for file in list_place_files(path)
    }
    content = hash_bytes(json.dumps(digests, sort_keys=True).encode())
    return External(ExternalConfig(content=content), result={"path": str(path.resolve())})


def list_place_files(path: Path) -> list[Path]:
    """Return the files that decide what a file or folder is, in order of name."""
    if path.is_file():
        return [path]
    return sorted(
        p
        for p in path.rglob("*")
        if p.is_file()
        and not p.name.startswith(".")
        and p.name not in INCIDENTAL
        and "checkpoints" not in p.relative_to(path).parts
    )
