"""The dump: which files, known by their names, sizes and content."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError, name_setting, require
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.beam_jobs.sample.sample_dump import is_sample, write_sample
from amazon_electra.flows.configuration.form import Dump
from amazon_electra.flows.store.stage import KnownFile, Stage
from amazon_electra.flows.store.store import Store

FIELD = "dump.paths"
SAMPLE = re.compile(r".*/samples/sample-(\d+)\.json\.gz")
"""Path of a synthetic dump, on any host."""


class DumpFile(Settings):
    """A file of a dump; its size in bytes."""

    name: str
    size: int
    sha256: str


class DumpListing(Settings):
    """What a dump is."""

    files: tuple[DumpFile, ...]


class ListedDump(Stage):
    """The files of a dump; nothing is copied. `result` has their paths on this host."""

    name, version, Config = "dump", 2, DumpListing
    has_job = False
    headline = ("files", "bytes")


def build_dump_stage(chosen: Dump, store: Store) -> ListedDump:
    """Return the dump, known by its files wherever they lie; nothing is copied."""
    files, paths = list[DumpFile](), list[str]()
    for given in sorted(chosen.paths, key=storage.is_remote):
        if storage.is_remote(given):
            found = sorted(storage.expand_patterns([given], FIELD))
        else:
            found = [str(path) for path in list_files(given, store)]
        with storage.report_unreachable(name_setting(FIELD, given)):
            for path in found:
                size, name = storage.get_size(path), path.rsplit("/", 1)[-1]
                files.append(DumpFile(name=name, size=size, sha256=store.digest(path)))
        paths += found
    if twice := {p for p in paths if paths.count(p) > 1}:
        raise UserError("named more than once", FIELD, min(twice))
    result = {
        "files": len(paths),
        "bytes": sum(file.size for file in files),
        "paths": paths,
        "name": name_dump(chosen.paths),
        "synthetic": not any(map(storage.is_remote, paths)) and all(map(is_sample, paths)),
    }
    return ListedDump(DumpListing(files=tuple(files)), result=result)


def list_files(given: str, store: Store, field: str = FIELD) -> list[Path]:
    """Return what one entry of dump.paths stands for, in order of name; mistakes name the field."""
    if given.startswith("sample:"):
        return [write_sample_dump(int(given.removeprefix("sample:")), store)]
    found = sorted(map(Path, storage.expand_patterns([str(Path(given).expanduser())], field)))
    for path in found:  # a link to nothing, or to itself, too
        require(os.access(path, os.R_OK), "cannot be read", field, path)
    require(any(path.stat().st_size for path in found), "is empty", field, found[0])
    return [path.resolve() for path in found]


def write_sample_dump(reviews: int, store: Store) -> Path:
    """Write the synthetic dump, once (in a dry run into a temporary folder); return its path."""
    name = f"samples/sample-{reviews}.json.gz"
    path = store.root / name
    if not path.exists() and store.is_dry:
        path = store.scratch / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sample(path, reviews, 0)
    return path


def locate_dump(dump: Stage, store: Store, on_engine: bool = False) -> list[str]:
    """Return the paths or addresses of a dump's files; UserError where one is not on this host as
    the run knows it. A sample is written again, for an engine's workers to the bucket of the store.
    """
    found: list[str] = []
    to_bucket = on_engine and storage.is_remote(store.address)
    for path, file in zip(dump.result["paths"], dump.parameters["files"], strict=True):
        if storage.is_remote(path):
            is_same = store.digest(path) == file["sha256"]
            require(is_same, "changed since it was listed; run the same again", FIELD, path)
            found.append(path)
            continue
        sample = SAMPLE.fullmatch(path)
        if sample and (to_bucket or not os.access(path, os.R_OK)):  # of another host or user
            path = str(write_sample_dump(int(sample[1]), store))
        found += locate_files([(path, file["sha256"])], store)
        if sample and to_bucket:
            found[-1] = f"{store.address}/samples/{Path(path).name}"
            storage.write_bytes(found[-1], Path(path).read_bytes())
    return found


def hash_files(paths: Sequence[Path], store: Store) -> tuple[KnownFile, ...]:
    """Return files with digests, since another host may have others of the same name."""
    return tuple((str(path), store.digest(path)) for path in paths)


def locate_files(files: Sequence[KnownFile], store: Store, field: str = FIELD) -> list[str]:
    """Return the paths of files; UserError where one is not on this host as the run knows it."""
    for path, sha256 in files:
        share = "put it into s3:// or gs://, or into a folder that all hosts share"
        require(Path(path).is_file(), f"not on this host; {share}", field, path)
        require(store.digest(path) == sha256, "differs on this host; copy it again", field, path)
    return [path for path, _ in files]


def name_dump(paths: list[str]) -> str:
    """Return a name short enough for a run: the first file's, and how many more there are."""
    first = Path(paths[0]).name.split(".")[0].replace("sample:", "sample-").replace("*", "")
    more = f"+{len(paths) - 1}" if len(paths) > 1 else ""
    return f"{first.strip('_-') or 'dump'}{more}"
