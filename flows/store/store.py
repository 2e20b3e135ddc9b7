"""Stage folders addressed by content: `<store>/<stage>/<fingerprint>/`, complete once they hold
`manifest.json`, which is written last. Of two hosts that make a stage in a bucket the first wins.

A fingerprint is a hash of the stage's name, version and parameters and of its inputs' fingerprints:
a whole run is known before anything is made, and a changed setting redoes what depends on it.
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
from typing import Annotated, Any
from uuid import uuid4

from fsspec.core import url_to_fs
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import TransientError, UserError
from amazon_electra.beam_jobs.core.files import (
    check_name,
    hash_bytes,
    hash_file,
    stat_files,
    write_json,
)
from amazon_electra.beam_jobs.core.locks import exclusive_lock, try_lock
from amazon_electra.beam_jobs.core.settings import join_mistakes
from amazon_electra.flows.store.bucket import (
    MANIFEST,
    Bucket,
    do_all,
    download_checkpoints,
    is_inside,
    upload_checkpoints,
)
from amazon_electra.flows.store.stage import PATH, Stage

log = logging.getLogger("amazon_electra")

LOG = "log.txt"
REQUEST = "stage.json"
"""In a folder that is being made: the request of the stage (flows/store/stage.py)."""
NOT_PUBLISHED = {MANIFEST, LOG, REQUEST}
"""Files of a stage folder that say how it came about, not what it holds; a manifest does not list
them.
"""
HOME = "remote.json"
"""File of a machine's part of a store in a bucket, with the store's address."""
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
"""Those that decide the bytes, or how they are shown."""
Manifest = dict[str, Any]
"""What `ManifestFields` describes."""


def refuse_outside(path: str) -> str:
    """Return a path; ValueError where it leads out of its folder."""
    if not is_inside(path):
        raise ValueError(f"{path!r} leads out of the folder")
    return path


Inside = Annotated[str, AfterValidator(refuse_outside)]


class Source(BaseModel):
    stage: Inside
    fingerprint: Inside


class ListedFile(BaseModel):
    path: Inside
    size: int
    sha256: str


class ManifestFields(BaseModel):
    """A manifest's fields without which nobody can use it; others say how it was made."""

    model_config = ConfigDict(extra="allow", strict=True)

    stage: Inside
    version: int
    fingerprint: Inside
    title: str
    parameters: dict[str, Any]
    inputs: dict[str, Source]
    files: list[ListedFile]
    result: dict[str, Any]
    finished: str
    attempt: Inside = ""
    """In a bucket: the prefix of the files."""


class Store:
    """Stage folders below `address`. Jobs read and write below the local folder `root`, which for a
    bucket holds copies: reading a stage fetches it.
    """

    def __init__(self, given: str | Path, is_dry: bool = False, root: Path | None = None):
        """Open a store by its folder, its address, or this machine's part of an address (`root`).
        One that `is_dry`, of a dry run, writes no digests.
        """
        if not str(given).strip():
            raise UserError("store: it has no name; give the folder of the results")
        folder, self.bucket = Path(given).expanduser().resolve(), None
        if "://" in str(given):
            self.bucket = Bucket(str(given))
            state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
            folder = Path(state, "amazon-electra", self.bucket.local_name).expanduser()
        elif (home := folder / HOME).is_file():
            self.bucket = Bucket(json.loads(home.read_text(encoding="utf-8"))["address"])
        self.root, self.is_dry = root or folder, is_dry
        self.address = self.bucket.address if self.bucket else str(self.root)
        self._attempts: dict[str, str] = {}
        """Prefix in the bucket of what this process makes, by the stage's path."""
        self._collected: set[str] = set()
        """Objects that an engine's workers wrote themselves."""
        self._checked: dict[Path, tuple[int, ...]] = {}
        """Files that this process has compared with their manifest, as they were then."""
        check_name(self.root, "store:")
        parents = (self.root, *self.root.parents)
        if file := next((p for p in parents if p.exists() and not p.is_dir()), None):
            raise UserError(f"store: {given}: {file} is a file; give the folder of the results")

    def check_access(self) -> None:
        """Raise UserError or TransientError, in one line, if nothing could be made here; who makes
        a local folder finds out (flows/servers/access.py).
        """
        if self.bucket:
            if not (self.root / HOME).exists():
                write_json(self.root / HOME, {"address": self.address})
            self.bucket.check_access(writes=True)

    def check_presence(self) -> None:
        """Raise UserError or TransientError, in one line, if nothing can be read here."""
        if self.bucket:
            self.bucket.check_access(writes=False)
        elif not self.root.is_dir():
            raise UserError("no such folder", "store", self.root)

    @cached_property
    def scratch(self) -> Path:
        """A folder of a dry run, which goes with its process."""
        self._scratch = tempfile.TemporaryDirectory()
        return Path(self._scratch.name)

    def folder(self, stage: Stage) -> Path:
        """Return where a stage is made, and where it is once it is fetched."""
        return self.root / stage.path

    def locate(self, stage: Stage) -> str:
        """Return where a stage stays: its folder, or the address of its files, which it has once it
        is complete or locked by this process.
        """
        if not self.bucket:
            return str(self.folder(stage))
        attempt = self._attempts.get(stage.path)
        if not attempt and (manifest := self._read_usable(stage.path)):
            attempt = manifest["attempt"]
        return f"{self.address}/{stage.path}" + (f"/{attempt}" if attempt else "")

    def open_input(self, stage: Stage, on_engine: bool) -> str:
        """Return what a job reads of a stage: a folder of this machine, or for an engine's workers
        where it stays.
        """
        return self.locate(stage) if on_engine else str(self.fetch(stage))

    def manifest(self, stage: Stage) -> Manifest | None:
        """Return the manifest of a complete stage, None of one that is not."""
        return self.read_manifest(stage.name, stage.fingerprint)

    def read_manifest(self, stage: str, fingerprint: str) -> Manifest | None:
        """Return the manifest of a stage; None where there is none, or a damaged one: then the
        stage is made again.
        """
        path = f"{stage}/{fingerprint}"
        return self._parse(f"{path}/{MANIFEST}", self._read(path))

    def list_manifests(self) -> list[Manifest]:
        """Return the manifests of all complete stages, oldest first."""
        if self.bucket:
            names = [n for n in self._sizes if n.endswith(f"/{MANIFEST}") and n.count("/") == 2]
            found = self.bucket.read_all(names)
        else:
            files = self.root.glob(f"*/*/{MANIFEST}")
            found = {str(path.relative_to(self.root)): path.read_bytes() for path in files}
        made = [self._parse(name, text) for name, text in found.items()]
        return sorted((one for one in made if one), key=lambda one: one["finished"])

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

    def fetch(self, stage: Stage, *parts: str) -> Path:
        """Return the folder of a stage with its files, or those in `parts`, on this machine; each
        is compared with the manifest's SHA-256 once in a process, as long as it stays.
        """
        path, folder = stage.path, self.folder(stage)
        manifest = self._read_usable(path) if self.bucket else self.manifest(stage)
        listed = [
            file
            for file in (manifest["files"] if manifest else [])
            if not parts or any(f"{file['path']}/".startswith(f"{part}/") for part in parts)
        ]
        missing = [file for file in listed if not self._is_whole(folder, file)]
        for file in missing:
            at = folder / file["path"]
            if not self.bucket:
                damage = "is not what its manifest lists" if at.exists() else "is not there"
                raise UserError(f"{at} {damage}; remove {folder} and it is made again")
            if at.exists():
                log.warning("%s is damaged: it is fetched again", at)
        if self.bucket and manifest:
            self._download(path, f"{path}/{manifest['attempt']}", missing)
            write_json(folder / MANIFEST, manifest)
        return folder

    @contextmanager
    def lock_stage(
        self, stage: Stage, waiting: Callable[[], None] = lambda: None
    ) -> Iterator[Path]:
        """Lock the stage for one process of this machine at a time and yield its folder; a process
        that died holds nothing, and what it wrote is still there. The stage of a bucket begins with
        the newest checkpoint there, unless this machine has one.
        """
        path, folder = stage.path, self.folder(stage)
        with exclusive_lock(folder.with_suffix(".lock"), waiting):
            if not self.bucket or self._read_usable(path) is not None:
                folder.mkdir(parents=True, exist_ok=True)
                yield folder
                return
            if (folder / MANIFEST).exists():  # a copy of what was removed from the bucket
                remove_folder(folder)
            folder.mkdir(parents=True, exist_ok=True)
            self._attempts[path] = f"files-{uuid4().hex[:8]}"
            if not stage.scratch:
                yield folder
                return
            if not any(folder.glob("*/step-*")):
                try:
                    download_checkpoints(self.bucket, path, folder)
                except ValueError as damage:
                    log.warning("%s is begun anew: %s", path, damage)
                    for name in stage.scratch:
                        shutil.rmtree(folder / name, ignore_errors=True)
            with upload_checkpoints(self.bucket, path, folder, stage.scratch):
                yield folder

    def collect_output(self, stage: Stage) -> None:
        """Bring what an engine's workers wrote to this machine, so that it can be published."""
        if self.bucket and stage.on_engine:
            start = f"{stage.path}/{self._attempts[stage.path]}"
            names = self.bucket.list_sizes(start)
            files = [{"path": n.removeprefix(f"{start}/"), "sha256": ""} for n in names]
            self._download(stage.path, start, files)
            self._collected |= names.keys()

    def publish(self, stage: Stage, result: Mapping[str, Any], **cost: float) -> Manifest:
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
        if self.bucket:
            manifest = self._upload(self.bucket, stage.path, manifest)
        else:
            write_json(folder / MANIFEST, manifest)
        for name in stage.scratch:
            shutil.rmtree(folder / name, ignore_errors=True)
        return manifest

    def _upload(self, bucket: Bucket, path: str, manifest: Manifest) -> Manifest:
        """Upload the files, then create the manifest, unless another host's is there, and remove
        what it does not name. Return the manifest that counts.
        """
        folder, attempt = self.root / path, self._attempts.pop(path, f"files-{uuid4().hex[:8]}")
        start = f"{path}/{attempt}"
        sizes = {file["path"]: file["size"] for file in manifest["files"]}
        names = [*sizes, *([LOG] if (folder / LOG).is_file() else [])]
        new = [name for name in names if f"{start}/{name}" not in self._collected]
        do_all(lambda name: bucket.upload(folder / name, f"{start}/{name}"), new)
        there = bucket.list_sizes(path)
        if lost := [name for name, size in sizes.items() if there.get(f"{start}/{name}") != size]:
            raise TransientError(f"{start}/{lost[0]} is not in the bucket as it was made")
        manifest["attempt"] = attempt
        content = json.dumps(manifest, indent=1, ensure_ascii=False).encode()
        if bucket.create(f"{path}/{MANIFEST}", content):
            write_json(folder / MANIFEST, manifest)
        else:
            log.warning("%s: another host was faster; what it made is used", path)
            remove_folder(folder)
            first = self._read_usable(path)
            if first is None:
                raise TransientError(f"{path}: another host made it, and it was removed since")
            manifest = first
        kept = f"{path}/{MANIFEST}", f"{path}/{manifest['attempt']}/"
        do_all(bucket.remove, [n for n in bucket.list_sizes(path) if not n.startswith(kept)])
        return manifest

    def list_folders(self) -> list[str]:
        """Return the paths of all stage folders, complete or not, in order."""
        if self.bucket:
            found = {"/".join(n.split("/")[:2]) for n in self._sizes if n.count("/") > 1}
        else:
            found = {str(p.relative_to(self.root)) for p in self.root.glob("*/*") if p.is_dir()}
        return sorted(path for path in found if PATH.fullmatch(path))

    def measure(self, path: str) -> int:
        """Return the bytes of all files of a stage folder."""
        if self.bucket:
            return sum(size for name, size in self._sizes.items() if name.startswith(f"{path}/"))
        return sum(s.st_size for _, s in stat_files(self.root / path, follow_links=False))

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """The bytes of every object, listed once: a command looks at one moment."""
        return self.bucket.list_sizes() if self.bucket else {}

    def is_locked(self, path: str) -> bool:
        """Return whether a process of this machine is making a stage."""
        lock = (self.root / path).with_suffix(".lock")
        if not lock.exists():
            return False
        with open(lock, "a+", encoding="utf-8") as file:
            return not try_lock(file)

    def remove(self, path: str) -> bool:
        """Remove a stage folder, its manifest first, unless it is being made; return whether it is
        gone. The lock's file stays: a maker may be waiting for it.
        """
        folder = self.root / path
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "a+", encoding="utf-8") as lock:
            if not try_lock(lock):
                return False
            if self.bucket:
                self.bucket.remove(f"{path}/{MANIFEST}")
                do_all(self.bucket.remove, self.bucket.list_sizes(path))
            remove_folder(folder)
        return True

    def digest(self, path: str | Path) -> str:
        """Return the SHA-256 of a file, remembered for as long as its size, times and inode stay,
        or its version in the store (ETag, generation): dumps are large.
        """
        if storage.is_remote(path):
            there, inner = url_to_fs(str(path))
            there.invalidate_cache()
            key = f"{path} {there.size(inner)} {there.ukey(inner)}"
        else:
            state = " ".join(map(str, describe(Path(path))))
            key = f"{Path(path).resolve()} {state}"
        memory = self.root / "digests" / hash_bytes(key.encode())[:32]
        if memory.exists():
            return str(json.loads(memory.read_text(encoding="utf-8"))["sha256"])
        found = storage.hash_file(str(path))
        if not self.is_dry:
            write_json(memory, {"file": key, "sha256": found})
        return found

    def _read(self, path: str) -> bytes | None:
        """Return the content of a stage's manifest, None if it has none."""
        if self.bucket:
            return self.bucket.read(f"{path}/{MANIFEST}")
        try:
            return (self.root / path / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None

    def _parse(self, name: str, text: bytes | None) -> Manifest | None:
        """Return a manifest, None where there is none or a damaged one, which is logged once."""
        try:
            return None if text is None else parse_manifest(text)
        except ValueError as damage:
            warn_of_damage(f"{self.address}/{name}", str(damage))
            return None

    def _read_usable(self, path: str) -> Manifest | None:
        """Return the manifest of a stage in the bucket; UserError for a damaged one, which nobody
        can replace.
        """
        text = self._read(path)
        if text is None:
            return None
        try:
            manifest = parse_manifest(text)
            if "attempt" not in manifest:
                raise ValueError("attempt: missing")
        except ValueError as damage:
            raise self._damage_error(path, f"{MANIFEST}: {damage}") from None
        return manifest

    def _damage_error(self, path: str, damage: str) -> UserError:
        remedy = f"remove {path}/{MANIFEST} there and it is made again"
        return UserError(f"{path} is damaged: {damage}; {remedy}", "store", self.address)

    def _download(self, path: str, start: str, files: list[dict[str, Any]]) -> None:
        """Copy files of a stage here; one that is not what its list says is never seen by a job."""
        assert self.bucket
        bucket, folder = self.bucket, self.root / path

        def download(file: dict[str, Any]) -> None:
            bucket.download(f"{start}/{file['path']}", folder / file["path"], file["sha256"])

        try:
            do_all(download, files)
        except ValueError as damage:
            raise self._damage_error(path, str(damage)) from None

    def _is_whole(self, folder: Path, file: Mapping[str, Any]) -> bool:
        """Return whether a file is there as its manifest lists it."""
        path = folder / file["path"]
        try:
            known = describe(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if self._checked.get(path) != known:
            if known[0] != file["size"] or hash_file(path) != file["sha256"]:
                return False
            self._checked[path] = known
        return True


def describe(path: Path) -> tuple[int, ...]:
    """Return by what one sees that a file has not changed: bytes, times, inode."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def remove_folder(folder: Path) -> None:
    """Remove a stage folder of this machine; what says that it is whole goes first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def parse_manifest(text: bytes) -> Manifest:
    """Return a manifest; ValueError where it is damaged, or names what is not below its folder."""
    try:
        return ManifestFields.model_validate_json(text).model_dump(exclude_unset=True)
    except ValidationError as invalid:
        raise ValueError(str(join_mistakes(invalid))) from None


@cache
def warn_of_damage(manifest: str, damage: str) -> None:
    """Say once in a process that a manifest is damaged."""
    log.warning("%s is damaged (%s): its stage does not count as complete", manifest, damage)


@cache
def read_package_versions() -> dict[str, str]:
    """Return the versions of the packages, without those that are not installed."""
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
    version, file = {"version": metadata.version("amazon-electra")}, Path(__file__)

    def run_git(*words: str) -> str:
        return subprocess.run(
            ["git", *words],
            cwd=file.parent,
            capture_output=True,
            encoding="utf-8",
            timeout=5,
            check=True,
        ).stdout.strip()

    with suppress(OSError, subprocess.SubprocessError):
        run_git("ls-files", "--error-unmatch", file.name)
        version["commit"] = run_git("describe", "--always", "--dirty")
    return version
