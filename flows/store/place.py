"""What a store asks of the place where its stages stay: a local folder, or a bucket."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

MANIFEST = "manifest.json"


class StoredFile(NamedTuple):
    """A file of a store, as far as it takes room."""

    identity: Any
    """Two names of the same bytes have one identity."""
    size: int
    names: int = 1
    """How many names the bytes have."""


class Place(Protocol):
    """Where the stage folders of a store lie. A folder is named `<stage>/<fingerprint>`.

    Jobs read and write below `root`, a local folder; what a place does beyond that is to bring
    files there and to keep what was made.
    """

    root: Path
    address: str

    def check_access(self) -> None:
        """Raise UserError or TransientError, in one line, if nothing could be made here."""

    def check_presence(self) -> None:
        """Raise UserError or TransientError, in one line, if nothing can be read here."""

    def read_manifest(self, name: str) -> bytes | None:
        """Return the content of a folder's manifest, None if it has none."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file that is part of no stage, None if there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file that is part of no stage, whole or not at all."""

    def list_manifests(self) -> Mapping[str, bytes]:
        """Return the contents of all manifests by the names of their folders."""

    def fetch(self, name: str, parts: Sequence[str] = ()) -> None:
        """Bring a complete folder below `root`; only the files or folders in `parts` if given."""

    def hold(self, name: str, on_wait: Callable[[], None]) -> AbstractContextManager[None]:
        """Let one maker at a time, on all hosts, make a folder; keep what it writes meanwhile."""

    def collect(self, name: str) -> None:
        """Bring what others wrote to a held folder below `root`."""

    def complete(self, name: str, manifest: Mapping[str, Any], extras: Iterable[str]) -> None:
        """Keep all files of the manifest, and `extras` where they are there; then the manifest."""

    def rewrite_manifest(self, name: str, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest of a complete folder."""

    def list_kinds(self) -> list[str]:
        """Return the names of the top folders, those of stages first."""

    def list_folders(self) -> list[str]:
        """Return the names of all stage folders, complete or not, in order."""

    def list_files(self, name: str) -> list[StoredFile]:
        """Return what takes room below a name."""

    def list_held(self, names: Sequence[str]) -> set[str]:
        """Return those of the folders that are being made."""

    def remove(self, name: str) -> bool:
        """Remove all that lies below a name, unless a stage is made there; return whether it is
        gone. A complete folder loses its manifest first.
        """


def check_path(path: str) -> None:
    """Raise ValueError if a manifest names a file that is not below its folder."""
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
