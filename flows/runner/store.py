"""Stage folders addressed by content: `<store>/<stage>/<fingerprint>/`, complete once they hold
`manifest.json`.

A fingerprint is a hash of the stage's name, version and parameters and of its inputs'
fingerprints, so what a whole run will make is known before anything is run, a changed setting
redoes exactly what depends on it, and a run that was killed continues at the first stage without a
manifest. The manifest is written last because object stores have no atomic rename.
"""

import hashlib
import json
import logging
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from beam_jobs.job.errors import UserError
from beam_jobs.job.files import hash_file, write_json
from beam_jobs.job.locks import exclusive_lock

log = logging.getLogger("amazon_electra")

MANIFEST = "manifest.json"
PARTS = {"stage", "version", "fingerprint", "title", "parameters", "inputs", "result", "finished"}
"""Of a manifest, without which nobody can use it."""
ACCELERATOR = "accelerator"
"""Tag of the stages that need the machine's one GPU, TPU or all its cores."""
NOT_PUBLISHED = {MANIFEST, "log.txt", "tracking.json", "system.jsonl"}
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


@dataclass(frozen=True)
class Stage:
    """One node of the graph: what is to be made, of what, by which job.

    `inputs` are the stages whose content decides this one's. `arguments` builds the job's command
    line from the store and the folder to write to; a stage without a job (`module` empty) is
    complete as soon as its `result` is known.
    """

    name: str
    version: int
    """Raised by whoever changes the job so that it makes something else: the code itself is not
    part of the fingerprint, since most changes of it change no byte of what it makes. The manifest
    names the code's commit.
    """
    parameters: Mapping[str, Any]
    inputs: Mapping[str, "Stage"] = field(default_factory=dict)
    module: str = ""
    arguments: Callable[["Store", Path], list[str]] = lambda store, folder: []
    result: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    tags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    written_last: str = ""
    """File with the result, where an earlier job may have made this stage along with its own (an
    evaluation).
    """
    scratch: tuple[str, ...] = ()
    """Folders in its own that its job continues from. No manifest lists them, and they go once it
    is complete.
    """
    tracked: bool = False
    """Whether it writes metrics.jsonl and is a run of its own in MLflow."""
    shared: bool = False
    """Whether a run that finds it complete has a run of it in MLflow too, as studies have of the
    cells that another one made.
    """
    labels: Mapping[str, str] = field(default_factory=dict)
    """Tags of its run in MLflow: by them, not by the fingerprint, people find it."""

    @cached_property
    def fingerprint(self) -> str:
        """Return 16 hex digits: enough that no two of a billion stages collide by chance (p <
        0.03).
        """
        identity = {
            "stage": self.name,
            "version": self.version,
            "parameters": self.parameters,
            "inputs": {name: stage.fingerprint for name, stage in self.inputs.items()},
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        return self.title or self.name


@dataclass(frozen=True)
class ExistingStage(Stage):
    """A stage that was made earlier and is known by its fingerprint alone."""

    known: str = ""

    @property
    def fingerprint(self) -> str:
        return self.known


class Store:
    """A local folder of stage folders."""

    def __init__(self, root: str | Path):
        if not str(root).strip():
            raise UserError("store: it has no name; give the folder of the results")
        if "://" in str(root):
            raise UserError(
                f"store: {root}: results go to a local folder, or to one that is mounted; "
                "dumps, and what the Beam jobs read and write when they run alone, may lie in "
                "gs:// or s3://"
            )
        self.root = Path(root).expanduser().resolve()
        if file := next(
            (p for p in (self.root, *self.root.parents) if p.exists() and not p.is_dir()), None
        ):
            raise UserError(f"store: {root}: {file} is a file; give the folder of the results")

    def folder(self, stage: Stage) -> Path:
        return self.root / stage.name / stage.fingerprint

    def manifest(self, stage: Stage) -> Manifest | None:
        """Return the manifest of a complete stage, None of one that is not."""
        return read_manifest(self.folder(stage))

    def publish(self, stage: Stage, result: Mapping[str, Any], **cost: float) -> Manifest:
        """Declare a stage folder complete: all files in it are listed with size and SHA-256 in the
        manifest.
        """
        folder = self.folder(stage)
        files = sorted(
            p
            for p in folder.rglob("*")
            if p.is_file()
            and p.name not in NOT_PUBLISHED
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
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **cost,
        }
        write_json(folder / MANIFEST, manifest)
        for name in stage.scratch:
            shutil.rmtree(folder / name, ignore_errors=True)
        return manifest

    @contextmanager
    def lock_stage(
        self, stage: Stage, waiting: Callable[[], None] = lambda: None
    ) -> Iterator[Path]:
        """Lock the stage's folder for one process at a time and yield it; a lock dies with the
        process that holds it.
        """
        folder = self.folder(stage)
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(folder.with_suffix(".lock"), waiting):
            yield folder

    def list_manifests(self) -> list[Manifest]:
        """Return the manifests of all complete stages, oldest first."""
        found = [read_manifest(path.parent) for path in self.root.glob(f"*/*/{MANIFEST}")]
        return sorted((m for m in found if m), key=lambda m: m["finished"])

    def find(self, fingerprint: str) -> list[Manifest]:
        """Return the manifests of the complete stages whose fingerprint begins so."""
        return [m for m in self.list_manifests() if m["fingerprint"].startswith(fingerprint)]

    def trace_lineage(self, manifest: Manifest) -> list[tuple[int, Manifest]]:
        """Return a stage and everything it was made of, each once: depth 0 the stage itself, 1 its
        inputs, …
        """
        found, seen = [(0, manifest)], {manifest["fingerprint"]}
        for depth, at in found:
            for source in at["inputs"].values():
                origin = read_manifest(self.root / source["stage"] / source["fingerprint"])
                if origin and origin["fingerprint"] not in seen:
                    seen.add(origin["fingerprint"])
                    found.append((depth + 1, origin))
        return found

    def digest(self, path: Path) -> str:
        """Return the SHA-256 of a file, remembered for as long as its size and times stay: dumps
        are large.
        """
        status = path.stat()
        key = f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        return self.remember_digest(key, lambda: hash_file(path))

    def remember_digest(self, key: str, digest: Callable[[], str]) -> str:
        """Return the digest of what `key` stands for, computed once."""
        memory = self.root / "digests" / hashlib.sha256(key.encode()).hexdigest()[:32]
        if not memory.exists():
            write_json(memory, {"file": key, "sha256": digest()})
        return json.loads(memory.read_text())["sha256"]


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a stage folder; None where there is none, or a damaged one: then the
    stage is made again.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if missing := PARTS - set(manifest):
            raise ValueError(f"no {', '.join(sorted(missing))}")
    except FileNotFoundError:
        return None
    except (TypeError, ValueError) as damage:
        warn_of_damage(folder / MANIFEST, str(damage))
        return None
    return manifest


@cache
def warn_of_damage(manifest: Path, damage: str) -> None:
    """Say once in a process that a manifest is damaged."""
    log.warning("%s is damaged (%s): the stage is made again", manifest, damage)


def read_package_versions() -> dict[str, str]:
    """Return the versions of the packages that decide the bytes; one that is not installed is left
    out.
    """
    versions = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


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
        command, capture_output=True, text=True, timeout=5, check=True
    ).stdout.strip()
