"""The cells of a study, each cached by what it depends on. Pure: nothing here starts a job."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.evaluation.study_file import Arm, Study, StudyTask, as_text, with_grid

VERSION = 2
"""Of what a cell computes; raised when results of the same question would change."""


@dataclass(frozen=True)
class Cell:
    """One fine-tuning and its evaluation."""

    arm: Arm
    task: StudyTask
    seed: int
    settings: Mapping[str, Any]

    @property
    def title(self) -> str:
        return f"{self.arm.name} · {self.task.name} · seed {self.seed}"

    def assignments(self) -> list[str]:
        """As `--set` takes them."""
        return [f"{name}={as_text(value)}" for name, value in sorted(self.settings.items())]

    def fingerprint(self, preset: str, inputs: Mapping[str, str]) -> str:
        """`inputs`: what its encoder, architecture, teacher and data are, by content."""
        question = {
            "version": VERSION,
            "task": self.task.task,
            "seed": self.seed,
            "preset": preset or None,
            "settings": dict(sorted(self.settings.items())),
            "encoder": self.arm.encoder if self.arm.encoder in ("random", "half") else "",
            "inputs": dict(sorted(inputs.items())),
        }
        return digest(question)


def cells(study: Study, searched: Callable[[Arm], Mapping[str, Any]] = lambda arm: {}) -> Iterator[Cell]:
    """In the order of the report. `searched`: the settings that were found for an arm."""
    for task in study.tasks:
        for arm in with_grid(study):
            for seed in study.seeds:
                yield cell(study, arm, task, seed, searched(arm))


def cell(study: Study, arm: Arm, task: StudyTask, seed: int, found: Mapping[str, Any]) -> Cell:
    """What the study says of all holds least, then what was found, then the task, then the arm."""
    return Cell(arm, task, seed, {**study.settings, **found, **task.settings, **arm.settings})


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:24]


def content_fingerprint(path: Path) -> str:
    """Of a file's or folder's bytes and names; logs and checkpoints, which do not decide what it is, left out."""
    if path.is_file():
        return _sha256(path)
    if not path.is_dir():
        return digest(str(path))
    files = sorted(p for p in path.rglob("*") if p.is_file() and not _incidental(p.relative_to(path)))
    return digest([(str(p.relative_to(path)), _sha256(p)) for p in files])


def _incidental(path: Path) -> bool:
    return path.name in ("log.txt", "metrics.jsonl", "manifest.json", "README.md") or "checkpoints" in path.parts


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
