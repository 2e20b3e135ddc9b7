"""Where the stage folders of a store lie: a local folder, in which stages stay where they are made.
A bucket (flows/store/bucket.py) has a local folder too, for the copies.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import check_name, hash_file, stat_files, write_json
from amazon_electra.beam_jobs.core.locks import exclusive_lock, try_lock
from amazon_electra.beam_jobs.core.nesting import load_json

MANIFEST = "manifest.json"
MAKER = ".maker"
"""In a folder that is being made: the attempt in a bucket that it belongs to."""
REQUEST = "stage.json"
"""In a folder that is being made: the request of the stage (flows/store/stage.py)."""
PARTS: Mapping[str, type] = {
    **dict.fromkeys(("stage", "fingerprint", "title", "finished"), str),
    **dict.fromkeys(("parameters", "inputs", "result"), dict),
    "version": int,
}
"""Of a manifest, without which nobody can use it, and their types."""


class Place:
    """A folder of this machine, or one that is mounted. A stage's folder is `<stage>/<fingerprint>`
    there: its name.
    """

    def __init__(self, given: str | Path):
        self.root = Path(given).expanduser().resolve()
        """Where jobs read and write, on this machine."""
        check_name(self.root, "store:")
        self.address = str(self.root)
        self._checked: dict[Path, tuple[int, ...]] = {}
        """Files of this process's reading that are whole, as they were then."""
        parents = (self.root, *self.root.parents)
        if file := next((p for p in parents if p.exists() and not p.is_dir()), None):
            raise UserError(f"store: {given}: {file} is a file; give the folder of the results")

    def check_access(self) -> None:
        """Raise UserError or TransientError, in one line, if nothing could be made here; who makes
        a local folder finds out (flows/servers/access.py).
        """

    def check_presence(self) -> None:
        """Raise UserError or TransientError, in one line, if nothing can be read here."""
        if not self.root.is_dir():
            raise UserError("no such folder", "store", self.root)

    def locate(self, name: str) -> str:
        """Return the folder or address of the files of a stage that is complete or held."""
        return f"{self.address}/{name}"

    def read_manifest(self, name: str) -> bytes | None:
        """Return the content of a folder's manifest, None if it has none."""
        try:
            return (self.root / name / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None

    def list_manifests(self) -> Mapping[str, bytes]:
        """Return the contents of all manifests by the names of their folders."""
        found = self.root.glob(f"*/*/{MANIFEST}")
        return {str(path.parent.relative_to(self.root)): path.read_bytes() for path in found}

    def fetch(self, name: str, parts: Sequence[str] = ()) -> None:
        """Bring a complete folder below `root`, or only the files or folders in `parts`; compare
        what is there with its manifest, unless this process has.
        """
        text = self.read_manifest(name)
        for file in parse_manifest(text)["files"] if text else ():
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

    def mark_checked(self, name: str, files: Iterable[Mapping[str, Any]]) -> None:
        """Take files for those that a manifest lists: they have just been read."""
        paths = [self.root / name / file["path"] for file in files]
        self._checked |= {path: describe(path) for path in paths}

    @contextmanager
    def hold(
        self, name: str, on_wait: Callable[[], None], kept: Sequence[str] = ()
    ) -> Iterator[None]:
        """Let one maker at a time make a folder, which keeps what it writes; a lock dies with the
        process that holds it. `kept` are its folders of checkpoints.
        """
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(folder.with_suffix(".lock"), on_wait):
            yield

    def collect(self, name: str) -> None:
        """Bring what others wrote to a held folder below `root`."""

    def complete(
        self, name: str, manifest: Mapping[str, Any], extras: Iterable[str]
    ) -> Mapping[str, Any]:
        """Keep all files of the manifest, and `extras` where they are there; then the manifest.

        Return the one that counts: another host's where that came first.
        """
        write_json(self.root / name / MANIFEST, manifest)
        self.mark_checked(name, manifest["files"])
        return manifest

    def list_folders(self) -> list[str]:
        """Return the names of all stage folders, complete or not, in order."""
        found = (path for path in self.root.glob("*/*") if path.is_dir())
        return sorted(n for p in found if is_stage_folder(n := str(p.relative_to(self.root))))

    def measure(self, name: str) -> int:
        """Return the bytes of all files of a stage folder."""
        return sum(s.st_size for _, s in stat_files(self.root / name, follow_links=False))

    def list_held(self, names: Sequence[str]) -> set[str]:
        """Return those of the folders that are being made."""
        return {name for name in names if is_locked(self.root / name)}

    def remove(self, name: str) -> bool:
        """Remove a stage folder, its manifest first, unless it is being made; return whether it is
        gone. The lock's file stays: a maker may be waiting for it.
        """
        folder = self.root / name
        with open(folder.with_suffix(".lock"), "a+", encoding="utf-8") as lock:
            if not try_lock(lock):
                return False
            (folder / MANIFEST).unlink(missing_ok=True)  # what is half removed is not complete
            shutil.rmtree(folder)
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
    with open(lock, "a+", encoding="utf-8") as file:
        return not try_lock(file)


def parse_manifest(text: bytes) -> dict[str, Any]:
    """Return a manifest; ValueError where it is damaged, or names what is not below its folder."""
    manifest = load_json(text)
    if not isinstance(manifest, dict):
        raise ValueError("no object")
    if missing := PARTS.keys() - manifest.keys():
        raise ValueError(f"no {', '.join(sorted(missing))}")
    for part, kind in PARTS.items():
        if not isinstance(manifest[part], kind):
            raise ValueError(f"{part} is not of type {kind.__name__}")
    try:
        check_path(f"{manifest['stage']}/{manifest['fingerprint']}")
        for source in manifest["inputs"].values():
            check_path(f"{source['stage']}/{source['fingerprint']}")
        files = {file["path"]: (file["size"], file["sha256"]) for file in manifest.get("files", [])}
        for path, (size, sha256) in files.items():
            check_path(path)
            if not (isinstance(size, int) and isinstance(sha256, str)):
                raise ValueError(f"{path} has no size and sha256")
            if other := files.keys() & {str(folder) for folder in PurePosixPath(path).parents}:
                raise ValueError(f"{min(other)} is a file, and the folder of {path}")
        check_path(manifest.get("attempt", "none"))
    except (TypeError, KeyError, AttributeError) as damage:
        raise ValueError(f"{type(damage).__name__}: {damage}") from None
    return manifest


def check_path(path: str) -> None:
    """Raise ValueError if a name, of a file or an object, leads out of its folder."""
    parts = path.split("/")
    if not path or "\\" in path or "\0" in path or {"", ".", ".."} & set(parts):
        raise ValueError(f"{path!r} leads out of the folder")


def is_part(path: str, parts: Sequence[str]) -> bool:
    """Return whether a file is one of the parts, or lies in one; no parts stand for everything."""
    return not parts or any(path == part or path.startswith(f"{part}/") for part in parts)


def is_stage_folder(name: str) -> bool:
    """Return whether `<stage>/<fingerprint>` names a stage folder."""
    *_, fingerprint = name.split("/")
    return len(fingerprint) == 16 and set(fingerprint) <= set("0123456789abcdef")
