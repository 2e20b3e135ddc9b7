"""The dump: which files, known by their names, sizes and content."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from beam_jobs import storage
from beam_jobs.command import UserMistake
from flows.parameters import Addition, Dump, Parameters
from flows.store import Stage, Store

READ_AT_ONCE = 1 << 24  # bytes


@dataclass(frozen=True)
class RemoteFile:
    """An object in a store of objects."""

    path: str
    name: str
    size: int
    sha256: str


def stage(parameters: Parameters | Addition, store: Store) -> Stage:
    """Nothing is copied: a dump's fingerprint is that of its files, wherever they lie."""
    far = [file for given in parameters.dump.paths if "://" in given for file in remote_files(given, store)]
    near = [path for given in parameters.dump.paths if "://" not in given for path in files(given, store)]
    paths = [*(str(path) for path in near), *(file.path for file in far)]
    if twice := {p for p in paths if paths.count(p) > 1}:
        raise UserMistake(f"dump.paths: {min(twice)} is named more than once")
    listing: list[dict[str, Any]] = [
        *({"name": p.name, "size": p.stat().st_size, "sha256": store.digest(p)} for p in near),
        *({"name": file.name, "size": file.size, "sha256": file.sha256} for file in far),
    ]
    result = {
        "files": len(paths),
        "bytes": sum(file["size"] for file in listing),
        "paths": paths,
        "name": name(parameters.dump.paths),
    }
    return Stage("dump", 1, {"files": listing}, result=result)


def remote_files(given: str, store: Store) -> list[RemoteFile]:
    """What a gs:// or s3:// address or glob stands for; each is read once for its digest, as long as it stays."""
    from fsspec.core import url_to_fs

    found = []
    with storage.reaching(given, "dump.paths"):
        there, pattern = url_to_fs(given)
        for path in sorted(storage.matching(there, pattern)):
            address, size = there.unstrip_protocol(path), there.size(path)
            identity = f"{address} {size} {there.ukey(path)}"
            content = store.remembered(identity, partial(digest, there, path))
            found.append(RemoteFile(address, path.rsplit("/", 1)[-1], size, content))
    if not found:
        raise UserMistake(f"dump.paths: no file {given}")
    return found


def digest(there: Any, path: str) -> str:
    """SHA-256 of an object, read in parts."""
    read = hashlib.sha256()
    with there.open(path, "rb") as file:
        while part := file.read(READ_AT_ONCE):
            read.update(part)
    return read.hexdigest()


def reading(chosen: Dump) -> dict[str, Any]:
    """How its files are to be read, as options of the jobs that read them; only what was set, so that what was made
    before there was a setting is still found."""
    options = {"columns": chosen.columns, "format": chosen.format, "encoding": chosen.encoding}
    return {name: value for name, value in options.items() if value}


def as_words(options: Mapping[str, Any]) -> list[str]:
    """Options as a job's command line has them."""
    words: list[str] = []
    for name, value in options.items():
        words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def files(given: str, store: Store, field: str = "dump.paths") -> list[Path]:
    """What one entry of dump.paths stands for, in order of name; mistakes name the field."""
    if given.startswith("sample:"):
        return [sample(int(given.removeprefix("sample:")), store)]
    found = sorted(Path(path).resolve() for path in storage.matching_here(str(Path(given).expanduser())))
    if not found:
        raise UserMistake(f"{field}: no file {given}")
    for path in found:
        if not path.is_file():
            raise UserMistake(f"{field}: {path} is a folder; name its files, for example {path}/*.json.gz")
        if path.stat().st_size == 0:
            raise UserMistake(f"{field}: {path} is empty")
    return found


def sample(reviews: int, store: Store) -> Path:
    """The synthetic dump, written once."""
    path = store.root / "samples" / f"sample-{reviews}.json.gz"
    if not path.exists():
        from beam_jobs.sample_dump import write_sample

        path.parent.mkdir(parents=True, exist_ok=True)
        write_sample(path, reviews, 0)
    return path


def name(paths: list[str]) -> str:
    """Short enough for the name of a run: the first file's, and how many more there are."""
    first = Path(paths[0]).name.split(".")[0].replace("sample:", "sample-").replace("*", "").strip("_-") or "dump"
    return first if len(paths) == 1 else f"{first}+{len(paths) - 1}"
