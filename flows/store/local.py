"""A local folder as the place of a store: stages stay where they are made."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from beam_jobs.core.errors import UserError
from beam_jobs.core.files import atomic_path, hash_file, stat_files, write_json
from beam_jobs.core.locks import exclusive_lock, try_lock
from flows.store.place import MANIFEST, StoredFile, is_part, is_stage_folder

MLFLOW = "mlflow"


class LocalPlace:
    """A folder of this machine, or one that is mounted."""

    def __init__(self, given: str | Path):
        self.root = Path(given).expanduser().resolve()
        self._checked: dict[Path, tuple[int, ...]] = {}
        """Files of this process's reading that are whole, as they were then."""
        self.address = str(self.root)
        parents = (self.root, *self.root.parents)
        if file := next((p for p in parents if p.exists() and not p.is_dir()), None):
            raise UserError(f"store: {given}: {file} is a file; give the folder of the results")

    def check_access(self) -> None:
        """Do nothing: who makes the folder finds out (flows/servers/access.py)."""

    def check_presence(self) -> None:
        if not self.root.is_dir():
            raise UserError(f"--store {self.root}: no such folder")

    def read_manifest(self, name: str) -> bytes | None:
        return self.read(f"{name}/{MANIFEST}")

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(self.root / name) as part:
            part.write_bytes(content)

    def list_manifests(self) -> Mapping[str, bytes]:
        found = self.root.glob(f"*/*/{MANIFEST}")
        return {str(path.parent.relative_to(self.root)): path.read_bytes() for path in found}

    def fetch(self, name: str, parts: Sequence[str] = ()) -> None:
        """Compare the files of a complete folder with its manifest, unless this process has."""
        text = self.read_manifest(name)
        for file in json.loads(text)["files"] if text else ():
            if is_part(file["path"], parts) and (why := self.find_damage(name, file)):
                raise UserError(
                    f"{self.root / name / file['path']} {why}; remove {self.root / name} and it is "
                    "made again"
                )

    def find_damage(self, name: str, file: Mapping[str, Any]) -> str:
        """Return how a file is other than its manifest lists it, or an empty text."""
        path = self.root / name / file["path"]
        try:
            known = describe(path)
        except (FileNotFoundError, NotADirectoryError):
            return "is not there"
        if self._checked.get(path) == known:
            return ""
        if known[0] != file["size"]:
            return f"has {known[0]:,} bytes instead of {file['size']:,}"
        if hash_file(path) != file["sha256"]:
            return "has another SHA-256 than its manifest"
        self._checked[path] = known
        return ""

    @contextmanager
    def hold(self, name: str, on_wait: Callable[[], None]) -> Iterator[None]:
        """Lock the folder for one process at a time; a lock dies with the process that holds it."""
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(folder.with_suffix(".lock"), on_wait):
            yield

    def collect(self, name: str) -> None:
        """Do nothing: who writes here writes below `root`."""

    def complete(self, name: str, manifest: Mapping[str, Any], extras: Iterable[str]) -> None:
        self.rewrite_manifest(name, manifest)
        paths = [self.root / name / file["path"] for file in manifest["files"]]
        self._checked |= {path: describe(path) for path in paths}  # they have just been read

    def rewrite_manifest(self, name: str, manifest: Mapping[str, Any]) -> None:
        write_json(self.root / name / MANIFEST, manifest)

    def list_kinds(self) -> list[str]:
        """Return the folders of the store.

        MLflow's comes last: a file that it has a second name of counts where it was made.
        """
        folders = [path.name for path in self.root.iterdir() if path.is_dir()]
        return sorted(folders, key=lambda name: (name == MLFLOW, name))

    def list_folders(self) -> list[str]:
        found = (path for path in self.root.glob("*/*") if path.is_dir())
        return sorted(n for p in found if is_stage_folder(n := str(p.relative_to(self.root))))

    def list_files(self, name: str) -> list[StoredFile]:
        states = (state for _, state in stat_files(self.root / name, follow_links=False))
        return [StoredFile(s.st_ino, s.st_size, s.st_nlink) for s in states]

    def list_held(self, names: Sequence[str]) -> set[str]:
        return {name for name in names if is_locked(self.root / name)}

    def remove(self, name: str) -> bool:
        """The lock's file stays: a maker may be waiting for it."""
        path, stage = self.root / name, "/".join(name.split("/")[:2])
        with open((self.root / stage).with_suffix(".lock"), "a+") as lock:
            if not try_lock(lock):
                return False
            (path / MANIFEST).unlink(missing_ok=True)  # what is half removed is not complete
            shutil.rmtree(path)
        return True


def describe(path: Path) -> tuple[int, ...]:
    """Return by what one sees that a file has not changed: bytes, times, inode."""
    state = path.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def is_locked(folder: Path) -> bool:
    """Return whether a process of this machine holds a stage folder."""
    lock = folder.with_suffix(".lock")
    if not lock.exists():
        return False
    with open(lock, "a+") as file:
        return not try_lock(file)
