"""Stage folders addressed by content: `<store>/<stage>/<fingerprint>/`, complete once they hold
`manifest.json`.

A fingerprint is a hash of the stage's name, version and parameters and of its inputs'
fingerprints, so what a whole run will make is known before anything is run, a changed setting
redoes exactly what depends on it, and a run that was killed continues at the first stage without a
manifest. The manifest is written last because object stores have no atomic rename. Where the
folders lie decides no fingerprint (flows/store).
"""

import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Protocol

from fsspec.core import url_to_fs

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import hash_bytes, hash_file, write_json
from amazon_electra.flows.store.place import MAKER, MANIFEST, REQUEST, Place, parse_manifest

log = logging.getLogger("amazon_electra")

LOG = "log.txt"
NOT_PUBLISHED = {MANIFEST, LOG, MAKER, REQUEST}
"""Files of a stage folder that say how it came about, not what it holds; a manifest does not list
them.
"""
PACKAGES = [
    "apache-beam",
    "mlflow",
    "nltk",
    "numpy",
    "prefect",
    "pyarrow",
    "tokenizers",
    "torch",
    "transformers",
]

Manifest = dict[str, Any]


class Stored(Protocol):
    """What a store knows of a stage (flows/store/stage.py), which reads and writes in the store."""

    name: ClassVar[str]
    version: ClassVar[int]

    @property
    def fingerprint(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def inputs(self) -> "Mapping[str, Stored]": ...

    @property
    def scratch(self) -> tuple[str, ...]: ...

    @property
    def on_engine(self) -> bool: ...


class Store:
    """Stage folders in a place: a local folder, or an address in s3:// or gs://.

    `root` is a local folder in either case: jobs read and write there, and what belongs to this
    machine lies there. Of a bucket it holds copies: reading a stage fetches it.
    """

    def __init__(self, root: str | Path, is_dry: bool = False):
        """Open a store; one that `is_dry`, of a dry run, remembers digests in memory alone."""
        if not str(root).strip():
            raise UserError("store: it has no name; give the folder of the results")
        self.is_dry, self._digests = is_dry, dict[Path, str]()
        self.place = open_place(str(root))
        self.root, self.address = self.place.root, self.place.address

    @cached_property
    def scratch(self) -> Path:
        """A folder of a dry run, which goes with its process."""
        self._scratch = tempfile.TemporaryDirectory()
        return Path(self._scratch.name)

    def folder(self, stage: Stored) -> Path:
        """Return where a stage is made, and where it is once it is fetched."""
        return self.root / stage.path

    def fetch(self, stage: Stored, *parts: str) -> Path:
        """Return the folder of a stage with its files, or those in `parts`, on this machine; they
        are compared with the manifest's SHA-256 once in a process, as long as they stay.
        """
        self.place.fetch(stage.path, parts)
        return self.folder(stage)

    def locate(self, stage: Stored) -> str:
        """Return where a stage stays: its folder, or the address of its files."""
        return self.place.locate(stage.path)

    def open_input(self, stage: Stored, on_engine: bool) -> str:
        """Return what a job reads of a stage: a folder of this machine, or for an engine's workers
        where it stays.
        """
        return self.locate(stage) if on_engine else str(self.fetch(stage))

    def open_output(self, folder: Path, on_engine: bool) -> str:
        """Return what a job writes to: a folder of this machine, or where the stage stays."""
        name = f"{folder.parent.name}/{folder.name}"
        return self.place.locate(name) if on_engine else str(folder)

    def collect_output(self, stage: Stored) -> None:
        """Bring what an engine's workers wrote to this machine, so that it can be published."""
        if stage.on_engine:
            self.place.collect(stage.path)

    def manifest(self, stage: Stored) -> Manifest | None:
        """Return the manifest of a complete stage, None of one that is not."""
        return self.read_manifest(stage.name, stage.fingerprint)

    def read_manifest(self, stage: str, fingerprint: str) -> Manifest | None:
        """Return the manifest of a stage; None where there is none, or a damaged one: then the
        stage is made again.
        """
        name = f"{stage}/{fingerprint}"
        text = self.place.read_manifest(name)
        return None if text is None else try_manifest(text, f"{self.address}/{name}/{MANIFEST}")

    def publish(self, stage: Stored, result: Mapping[str, Any], **cost: float) -> Manifest:
        """Declare a stage folder complete: all files in it are listed with size and SHA-256 in the
        manifest. Return the manifest that counts: another host's where that came first.
        """
        folder = self.folder(stage)
        files = sorted(
            p
            for p in folder.rglob("*")
            if p.is_file()
            and p.name not in NOT_PUBLISHED
            and not p.name.startswith(".")  # another thread writes it and gives it its name then
            and p.relative_to(folder).parts[0] not in stage.scratch
        )
        manifest: Manifest = {
            "stage": stage.name,
            "version": stage.version,
            "fingerprint": stage.fingerprint,
            "title": stage.label,
            "parameters": dict(stage.parameters),
            "inputs": {
                n: {"stage": s.name, "fingerprint": s.fingerprint} for n, s in stage.inputs.items()
            },
            "files": [
                {
                    "path": str(p.relative_to(folder)),
                    "size": p.stat().st_size,
                    "sha256": hash_file(p),
                }
                for p in files
            ],
            "result": dict(result),
            "code": read_code_version(),
            "packages": read_package_versions(),
            "finished": datetime.now(UTC).isoformat(timespec="microseconds"),
            **cost,
        }
        published = dict(self.place.complete(stage.path, manifest, [LOG]))
        for name in stage.scratch:
            shutil.rmtree(folder / name, ignore_errors=True)
        return published

    @contextmanager
    def lock_stage(
        self, stage: Stored, waiting: Callable[[], None] = lambda: None
    ) -> Iterator[Path]:
        """Lock the stage for one process at a time and yield its folder; a process that died holds
        nothing.
        """
        with self.place.hold(stage.path, waiting, stage.scratch):
            yield self.folder(stage)

    def list_manifests(self) -> list[Manifest]:
        """Return the manifests of all complete stages, oldest first."""
        found = [
            try_manifest(text, f"{self.address}/{name}/{MANIFEST}")
            for name, text in self.place.list_manifests().items()
        ]
        return sorted((m for m in found if m), key=lambda m: m["finished"])

    def find(self, fingerprint: str) -> list[Manifest]:
        """Return the manifests of the complete stages whose fingerprint begins so."""
        return [m for m in self.list_manifests() if m["fingerprint"].startswith(fingerprint)]

    def trace_lineage(
        self, manifest: Manifest, known: Mapping[str, Manifest] | None = None
    ) -> list[tuple[int, Manifest]]:
        """Return a stage and everything it was made of, each once: depth 0 the stage itself, 1 its
        inputs, … `known` are manifests that were read already, by fingerprint.
        """
        found, seen = [(0, manifest)], {manifest["fingerprint"]}
        for depth, at in found:
            for source in at["inputs"].values():
                origin = (known or {}).get(source["fingerprint"]) or self.read_manifest(
                    source["stage"], source["fingerprint"]
                )
                if origin and origin["fingerprint"] not in seen:
                    seen.add(origin["fingerprint"])
                    found.append((depth + 1, origin))
        return found

    def digest(self, path: str | Path) -> str:
        """Return the SHA-256 of a file, remembered for as long as its size, times and inode stay,
        or its version in the store (ETag, generation): dumps are large.
        """
        if storage.is_remote(path):
            there, inner = url_to_fs(str(path))
            there.invalidate_cache()
            key = f"{path} {there.size(inner)} {there.ukey(inner)}"
        else:
            state = os.stat(path)
            times = f"{state.st_mtime_ns} {state.st_ctime_ns} {state.st_ino}"
            key = f"{Path(path).resolve()} {state.st_size} {times}"
        memory = self.root / "digests" / hash_bytes(key.encode())[:32]
        if not memory.exists():
            found = self._digests.get(memory) or storage.hash_file(str(path))
            if self.is_dry:
                self._digests[memory] = found
                return found
            write_json(memory, {"file": key, "sha256": found})
        return json.loads(memory.read_text(encoding="utf-8"))["sha256"]


def open_place(given: str) -> Place:
    """Return the place of an address, of a folder, or of a machine's part of an address."""
    from amazon_electra.flows.store.bucket import open_remote_place, read_remote_address

    if "://" in given:
        return open_remote_place(given)
    place = Place(given)
    address = read_remote_address(place.root)
    return open_remote_place(address, place.root) if address else place


def try_manifest(text: bytes, where: str) -> Manifest | None:
    """Return a manifest, or None of a damaged one."""
    try:
        return parse_manifest(text)
    except ValueError as damage:
        warn_of_damage(where, str(damage))
        return None


@cache
def warn_of_damage(manifest: str, damage: str) -> None:
    """Say once in a process that a manifest is damaged."""
    log.warning("%s is damaged (%s): its stage does not count as complete", manifest, damage)


@cache
def read_package_versions() -> dict[str, str]:
    """Return the versions of the packages that decide the bytes; one that is not installed is left
    out.
    """
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


@cache
def read_code_version() -> dict[str, str]:
    """Return the package's version and, in a checkout, its commit.

    A repository that an installed package happens to lie in says nothing about it: this file must
    be one of its own.
    """
    version = {"version": metadata.version("amazon-electra")}
    with suppress(OSError, subprocess.SubprocessError):
        _run_git("ls-files", "--error-unmatch", Path(__file__).name)
        version["commit"] = _run_git("describe", "--always", "--dirty")
    return version


def _run_git(*words: str) -> str:
    """Return what git prints in this file's folder; raise CalledProcessError where it fails."""
    command = ["git", "-C", str(Path(__file__).parent), *words]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=5, check=True
    ).stdout.strip()
