"""Takes data and models made elsewhere: files are known by their content, hub names as such."""

import hashlib
import json
from pathlib import Path

from beam_jobs.core.errors import UserError
from flows.stages.origin_folder import locate_origin
from flows.stages.pretraining import locate_exported_folder
from flows.stages.versions import VERSIONS
from flows.store.store import Stage, Store

INCIDENTAL = {"log.txt", "metrics.jsonl", "manifest.json", "README.md"}
"""Files that say how a folder came about, not what it holds."""


def build_external_stage(place: str, store: Store) -> Stage:
    """Return the stage of a file, a folder or a name on the hub; there is nothing to make."""
    path = Path(place).expanduser()
    if not path.exists():
        return Stage("external", VERSIONS["external"], {"name": place}, result={"path": place})
    digests = {
        "" if file == path else str(file.relative_to(path)): store.digest(file)
        for file in list_place_files(path)
    }
    content = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
    return Stage(
        "external", VERSIONS["external"], {"content": content}, result={"path": str(path.resolve())}
    )


def check_place(stage: Stage, store: Store) -> None:
    """Raise UserError where a file or a folder is not on this host as the run knows it."""
    path = stage.result["path"]
    if build_external_stage(path, store).fingerprint == stage.fingerprint:
        return
    if Path(path).exists():
        raise UserError(f"{path} is something else on this host; copy it again")
    raise UserError(
        f"{path} is not on this host; put it into a folder that all hosts see at the same path"
    )


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


def locate_stage(store: Store, stage: Stage) -> str:
    """Return where the files of a stage are: its folder, or the place of an external one."""
    return stage.result["path"] if stage.name == "external" else str(store.fetch(stage))


def locate_encoder(store: Store, stage: Stage) -> str:
    """Return the transformers folder (or hub name) of an encoder that is there to be fine-tuned."""
    if stage.name == "origin":
        return str(locate_origin(store, stage))
    if stage.name != "pretraining":
        return locate_stage(store, stage)
    return str(locate_exported_folder(store, stage))
