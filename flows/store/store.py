"""Stage folders addressed by content: `<store>/<stage>/<fingerprint>/`, complete once they hold
`manifest.json`, which is written last. Of two hosts that make a stage in a bucket the first wins.
"""

import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import TransientError, UserError, require
from amazon_electra.beam_jobs.core.files import (
    check_name,
    hash_bytes,
    make_writable_folder,
    write_json,
)
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.settings import join_mistakes
from amazon_electra.flows.store.bucket import (
    MANIFEST,
    Bucket,
    do_all,
    is_inside,
    keep_checkpoints,
)
from amazon_electra.flows.store.stage import PATH, Stage
from amazon_electra.model.locks import exclusive_lock, try_lock

log = logging.getLogger("amazon_electra")

LOG, REQUEST = "log.txt", "stage.json"
"""Of a stage folder: what its job wrote, and the request of the stage (flows/store/stage.py)."""
Manifest = dict[str, Any]
"""What `ManifestFields` describes."""


def refuse_outside(path: str) -> str:
    """Return a path; ValueError where it leads out of its folder."""
    if not is_inside(path):
        raise ValueError(f"{path!r} leads out of the folder")
    return path


Inside = Annotated[str, AfterValidator(refuse_outside)]


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
    inputs: dict[str, dict[str, Inside]]
    """Their `stage` and `fingerprint`."""
    files: list[ListedFile]
    result: dict[str, Any]
    finished: str
    attempt: Inside = ""
    """In a bucket: the prefix of the files."""


class Store:
    """Stage folders below `address`; `root` is where jobs read and write, of a bucket in copies."""

    def __init__(self, given: str | Path, root: Path | None = None):
        require(str(given).strip(), "store: it has no name; give the folder of the results")
        self.bucket = Bucket(str(given)) if storage.is_remote(given) else None
        if self.bucket:
            state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state", "amazon-electra")
            given = state / hash_bytes(self.bucket.address.encode())[:16]
        self.root = root or Path(given).expanduser().resolve()
        self.address = self.bucket.address if self.bucket else str(self.root)
        self._attempt = f"files-{uuid4().hex[:8]}"
        """Prefix in the bucket of what this process makes of a stage."""
        check_name(self.root, "store:")

    def check_access(self, writes: bool = True) -> None:
        """Raise UserError or TransientError if nothing can be read here, or made."""
        if writes:
            os.umask(0o077)  # nobody else reads what this process and its children write
            make_writable_folder("store", self.root)
        if self.bucket:
            self.bucket.check_access(writes)
        else:
            require(self.root.is_dir(), "no such folder", "store", self.root)

    def folder(self, stage: Stage) -> Path:
        """Return where a stage is made, and where it is once it is fetched."""
        return self.root / stage.path

    def locate(self, stage: Stage) -> str:
        """Return where a complete stage stays: its folder, or the address of its files."""
        made = self.manifest(stage) if self.bucket else None
        return f"{self.address}/{stage.path}/{(made or {}).get('attempt', '')}".rstrip("/")

    def open_output(self, stage: Stage) -> str:
        """Return where the job of a stage writes: its folder, or the bucket from an engine."""
        if self.bucket and stage.on_engine:
            return f"{self.address}/{stage.path}/{self._attempt}"
        return str(self.folder(stage))

    def manifest(self, stage: Stage) -> Manifest | None:
        """Return the manifest of a complete stage, None of one that is not."""
        return self.read_manifest(stage.path)

    def read_manifest(self, path: str) -> Manifest | None:
        """Return the manifest of `STAGE/FINGERPRINT`, if any; UserError for a damaged one."""
        name = f"{path}/{MANIFEST}"
        try:
            text = self.bucket.read(name) if self.bucket else (self.root / name).read_bytes()
            if text is None:
                return None
            return ManifestFields.model_validate_json(text).model_dump(exclude_unset=True)
        except FileNotFoundError:
            return None
        except ValidationError as invalid:
            why = f"{join_mistakes(invalid)}; remove it, and the stage is made again"
            raise UserError(f"{name} is damaged: {why}", "store", self.address) from None

    def list_manifests(self) -> list[Manifest]:
        """Return the manifests of all complete stages, oldest first, without damaged ones."""

        def read(path: str) -> Manifest | None:
            try:
                return self.read_manifest(path)
            except UserError as damage:
                log.warning("%s", damage)
                return None

        names = self.bucket.list_sizes() if self.bucket else self.root.glob(f"*/*/{MANIFEST}")
        paths = (str(name).removeprefix(f"{self.root}/").rpartition("/") for name in names)
        found = do_all(read, [p for p, _, name in paths if name == MANIFEST and p.count("/") == 1])
        return sorted((made for made in found if made), key=lambda made: made["finished"])

    def trace_lineage(
        self, manifest: Manifest, known: Mapping[str, Manifest] | None = None
    ) -> list[tuple[int, Manifest]]:
        """Return a stage and all it was made of, each once, with its depth: 0, 1 its inputs, …"""
        found, seen = [(0, manifest)], {manifest["fingerprint"]}
        for depth, at in found:
            for source in at["inputs"].values():
                if (fingerprint := source["fingerprint"]) in seen:
                    continue
                seen.add(fingerprint)
                made = (known or {}).get(fingerprint)
                if made := made or self.read_manifest(f"{source['stage']}/{fingerprint}"):
                    found.append((depth + 1, made))
        return found

    def fetch(self, stage: Stage, *parts: str) -> Path:
        """Return the folder of a stage here, its files, or `parts`, being as the manifest says."""
        folder, manifest = self.folder(stage), self.manifest(stage)
        if manifest is None:
            return folder
        missing = [
            file
            for file in manifest["files"]
            if (not parts or any(f"{file['path']}/".startswith(f"{part}/") for part in parts))
            and not is_whole(folder / file["path"], file["sha256"])
        ]
        if bucket := self.bucket:
            start = f"{stage.path}/{manifest.get('attempt', '')}"

            def download(file: Mapping[str, str]) -> None:
                bucket.download(f"{start}/{file['path']}", folder / file["path"], file["sha256"])

            do_all(download, missing)
            write_json(folder / MANIFEST, manifest)
        elif missing:
            at, again = folder / missing[0]["path"], f"remove {folder} and it is made again"
            raise UserError(f"{at} is not as its manifest lists it; {again}")
        return folder

    @contextmanager
    def lock_stage(
        self, stage: Stage, waiting: Callable[[], None] = lambda: None
    ) -> Iterator[Path]:
        """Hold a stage for one process of this machine at a time; yield its folder."""
        folder = self.folder(stage)
        with exclusive_lock(folder.with_suffix(".lock"), waiting), ExitStack() as stack:
            is_begun = self.bucket is not None and self.manifest(stage) is None
            if is_begun and (folder / MANIFEST).exists():  # it was removed from the bucket
                remove_folder(folder)
            folder.mkdir(parents=True, exist_ok=True)
            if self.bucket and is_begun:
                kept = keep_checkpoints(self.bucket, stage.path, folder, stage.scratch)
                stack.enter_context(kept)
            yield folder

    def publish(self, stage: Stage, result: Mapping[str, Any], **cost: float) -> Manifest:
        """Complete a stage folder by its manifest; return it, or another host's that came first."""
        folder = self.folder(stage)
        if (bucket := self.bucket) and stage.on_engine:  # its workers wrote to the bucket
            start = f"{stage.path}/{self._attempt}/"
            names = bucket.list_sizes(start)
            do_all(lambda name: bucket.download(name, folder / name.removeprefix(start)), names)
        left_out, files = {MANIFEST, LOG, REQUEST}, []
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            # what begins with a dot another thread writes, and names it then
            is_own = parts[0] not in stage.scratch and not any(p.startswith(".") for p in parts)
            if is_own and path.is_file() and path.name not in left_out:
                sha256 = hash_once(str(path), identify(path))
                size = path.stat().st_size
                files.append({"path": "/".join(parts), "size": size, "sha256": sha256})
        manifest: Manifest = {
            "stage": stage.name,
            "version": stage.version,
            "fingerprint": stage.fingerprint,
            "title": stage.label,
            "parameters": dict(stage.parameters),
            "inputs": {
                n: {"stage": s.name, "fingerprint": s.fingerprint} for n, s in stage.inputs.items()
            },
            "files": files,
            "result": dict(result),
            "finished": datetime.now(UTC).isoformat(timespec="microseconds"),
            **cost,
        }
        if self.bucket:
            manifest = self._upload(self.bucket, stage, {**manifest, "attempt": self._attempt})
        else:
            write_json(folder / MANIFEST, manifest)
        for name in stage.scratch:
            shutil.rmtree(folder / name, ignore_errors=True)
        return manifest

    def _upload(self, bucket: Bucket, stage: Stage, manifest: Manifest) -> Manifest:
        """Upload files and then the manifest, unless there is one; remove what it does not name."""
        path, folder, start = stage.path, self.folder(stage), f"{stage.path}/{self._attempt}"
        there = bucket.list_sizes(start)  # an engine's workers wrote it
        sizes = {file["path"]: file["size"] for file in manifest["files"]}
        new = [name for name, size in sizes.items() if there.get(f"{start}/{name}") != size]
        new += [LOG] if (folder / LOG).is_file() else []
        do_all(lambda name: bucket.upload(folder / name, f"{start}/{name}"), new)
        content = json.dumps(manifest, indent=1, ensure_ascii=False).encode()
        if bucket.create(f"{path}/{MANIFEST}", content):
            write_json(folder / MANIFEST, manifest)
        else:
            log.warning("%s: another host was faster; what it made is used", path)
            remove_folder(folder)
            first = self.manifest(stage)
            if first is None:
                raise TransientError(f"{path}: another host made it, and it was removed since")
            manifest = first
        kept = f"{path}/{MANIFEST}", f"{path}/{manifest['attempt']}/"
        do_all(bucket.remove, [n for n in bucket.list_sizes(path) if not n.startswith(kept)])
        return manifest

    def measure_folders(self) -> dict[str, int]:
        """Return the bytes of each stage folder, complete or not, by its path, in order."""
        sizes = Counter[str]()
        if self.bucket:
            for name, size in self.bucket.list_sizes().items():
                sizes["/".join(name.split("/")[:2])] += size
        else:
            for folder in filter(Path.is_dir, self.root.glob("*/*")):
                fs, place = storage.open_store(folder)
                sizes[str(folder.relative_to(self.root))] = fs.du(place)
        return {path: sizes[path] for path in sorted(sizes) if PATH.fullmatch(path)}

    def remove(self, path: str) -> bool:
        """Remove a stage folder, but its lock, unless it is being made; return whether it went."""
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
        """Return the SHA-256 of a file, remembered while it stays as it is: dumps are large."""
        key = identify(path)
        memory = self.root / "digests" / hash_bytes(key.encode())[:32]
        if memory.exists():
            return str(read_json(memory)["sha256"])
        found = hash_once(str(path), key)
        if self.root.is_dir():  # not in a dry run without a store
            write_json(memory, {"file": key, "sha256": found})
        return found


def identify(path: str | Path) -> str:
    """Return what changes with a file: size, times and inode, or its version in a store."""
    if storage.is_remote(path):
        return " ".join(map(str, storage.describe_identity(str(path))))
    state = os.stat(path)
    times = f"{state.st_mtime_ns} {state.st_ctime_ns}"
    return f"{Path(path).resolve()} {state.st_size} {times} {state.st_ino}"


@cache
def hash_once(path: str, identity: str) -> str:
    """Return the SHA-256 of a file, as long as its identity stays."""
    return storage.hash_file(path)


def is_whole(path: Path, sha256: str) -> bool:
    """Return whether a file is here as a manifest lists it."""
    return path.is_file() and hash_once(str(path), identify(path)) == sha256


def remove_folder(folder: Path) -> None:
    """Remove a stage folder of this machine; what says that it is whole goes first."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
