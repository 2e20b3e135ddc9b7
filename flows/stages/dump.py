"""The dump: which files, known by their names, sizes and content."""

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError, name_setting, require
from amazon_electra.beam_jobs.core.settings import Settings
from amazon_electra.beam_jobs.sample.sample_dump import write_sample
from amazon_electra.flows.configuration.form import Dump
from amazon_electra.flows.store.stage import KnownFile, Stage
from amazon_electra.flows.store.store import Store

FIELD = "dump.paths"


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
        found = list_files(given, store)
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
        "synthetic": all(given.startswith("sample:") for given in chosen.paths),
    }
    return ListedDump(DumpListing(files=tuple(files)), result=result)


@cache
def make_scratch() -> TemporaryDirectory[str]:
    """Return a folder that goes with its process."""
    return TemporaryDirectory()


def list_files(given: str, store: Store, field: str = FIELD) -> list[str]:
    """Return the files that an entry stands for, in order of name; mistakes name the field. The
    synthetic dump is written into the store, once, or in a dry run without one elsewhere.
    """
    if given.startswith("sample:"):
        number = int(given.removeprefix("sample:"))
        sample = storage.join_path(store.address, name := f"samples/sample-{number}.json.gz")
        if not storage.exists(sample):
            is_dry = not store.root.is_dir()
            local = Path(make_scratch().name if is_dry else store.root, name)
            write_sample(local, number, 0)
            if is_dry:
                return [str(local)]
            if storage.is_remote(sample):
                storage.write_bytes(sample, local.read_bytes())
        return [sample]
    if storage.is_remote(given):
        return sorted(storage.list_files([given], field))
    found = sorted(map(Path, storage.list_files([str(Path(given).expanduser())], field)))
    for path in found:  # a link to nothing, or to itself, too
        require(os.access(path, os.R_OK), "cannot be read", field, path)
    require(any(path.stat().st_size for path in found), "is empty", field, found[0])
    return [str(path.resolve()) for path in found]


def hash_files(places: Sequence[str], store: Store, field: str) -> tuple[KnownFile, ...]:
    """Return files with digests, since another host may have others of the same name."""
    found = [path for given in places for path in list_files(given, store, field)]
    return tuple((path, store.digest(path)) for path in found)


def locate_dump(dump: Stage, store: Store) -> list[str]:
    """Return the paths or addresses of a dump's files, checked as `locate_files` does."""
    known = zip(dump.result["paths"], dump.parameters["files"], strict=True)
    return locate_files([(path, file["sha256"]) for path, file in known], store)


def locate_files(files: Sequence[KnownFile], store: Store, field: str = FIELD) -> list[str]:
    """Return the paths of files; UserError where one is not on this host as the run knows it."""
    for path, sha256 in files:
        share = "put it into s3:// or gs://, or into a folder that all hosts share"
        is_here = storage.is_remote(path) or Path(path).is_file()
        require(is_here, f"not on this host; {share}", field, path)
        is_same = store.digest(path) == sha256
        require(is_same, "has changed, or differs on this host; run the same again", field, path)
    return [path for path, _ in files]


def name_dump(paths: list[str]) -> str:
    """Return a name short enough for a run: the first file's, and how many more there are."""
    first = Path(paths[0]).name.split(".")[0].replace("sample:", "sample-").replace("*", "")
    more = f"+{len(paths) - 1}" if len(paths) > 1 else ""
    return f"{first.strip('_-') or 'dump'}{more}"
