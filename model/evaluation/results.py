"""A study's evaluations brought together: arms × tasks, seeds pooled, differences tested."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.command import UserMistake
from model.evaluation import significance
from model.evaluation.metrics import METRICS
from model.evaluation.predictions import Predictions, read
from model.evaluation.significance import Comparison


@dataclass(frozen=True)
class Cell:
    """One evaluated fine-tuning."""

    arm: str
    task: str
    seed: int
    folder: Path
    about: Mapping[str, Any] = field(repr=False)
    """Its metrics.json."""
    predictions: Predictions = field(repr=False)
    fingerprint: str = ""
    """What it was made of, where the study tells."""


@dataclass(frozen=True)
class Results:
    """Every cell of a study, and what its numbers say: [arms × tasks × seeds] evaluations on the same test examples."""

    cells: Sequence[Cell]
    _pooled: dict[tuple[str, str], dict[str, dict[str, float]]] = field(default_factory=dict, repr=False)

    @property
    def arms(self) -> list[str]:
        """In the order the study names them: the first is what is asked about."""
        return list(dict.fromkeys(cell.arm for cell in self.cells))

    @property
    def tasks(self) -> list[str]:
        """As the study calls them, in its order."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    def of(self, arm: str, task: str) -> list[Cell]:
        """One cell for each seed, by seed; empty where the arm was not run on the task."""
        return sorted((c for c in self.cells if c.arm == arm and c.task == task), key=lambda c: c.seed)

    def metrics(self, task: str) -> list[str]:
        """Their names in model/evaluation/metrics.py, the main one first."""
        return list(next(c for c in self.cells if c.task == task).about["metrics"])

    def asked(self, task: str) -> str:
        """The task by its own name, whatever the study calls it."""
        return next(c for c in self.cells if c.task == task).about["task"]

    def main_metric(self, task: str) -> str:
        """The one that arms are compared by."""
        return next(c for c in self.cells if c.task == task).about["main_metric"]

    def pooled(self, arm: str, task: str) -> dict[str, dict[str, float]]:
        """Each metric's mean over seeds with its interval; empty where the arm has no cell of the task."""
        if (arm, task) not in self._pooled:
            seeds = [cell.predictions for cell in self.of(arm, task)]
            metrics = self.metrics(task) if seeds else []
            self._pooled[arm, task] = {m: significance.pooled(METRICS[m], seeds) for m in metrics}
        return self._pooled[arm, task]

    def differences(self, pairs: Sequence[tuple[str, str]] | None = None) -> list["Difference"]:
        """Every pair of arms on every task by the task's main metric, Holm-corrected over all of them.

        Without pairs the first arm is compared with each of the others. UserMistake where two have nothing in common.
        """
        pairs = pairs or [(self.arms[0], other) for other in self.arms[1:]]
        found = []
        for a, b in pairs:
            asked = [(task, *self._same_seeds(a, b, task)) for task in self.tasks]
            if not any(of_a for _, of_a, _ in asked):
                arms = ", ".join(self.arms)
                raise UserMistake(f"comparisons: {a!r} and {b!r} have no task and seed in common; the arms are {arms}")
            for task, of_a, of_b in asked:
                if of_a:
                    metric = METRICS[self.main_metric(task)]
                    found.append((a, b, task, significance.compare(metric, of_a, of_b)))
        corrected = significance.with_holm([comparison for *_, comparison in found])
        return [Difference(a, b, task, c) for (a, b, task, _), c in zip(found, corrected, strict=True)]

    def _same_seeds(self, a: str, b: str, task: str) -> tuple[list[Predictions], list[Predictions]]:
        of_a = {cell.seed: cell.predictions for cell in self.of(a, task)}
        of_b = {cell.seed: cell.predictions for cell in self.of(b, task)}
        seeds = sorted(of_a.keys() & of_b.keys())
        return [of_a[s] for s in seeds], [of_b[s] for s in seeds]


@dataclass(frozen=True)
class Difference:
    """Arm `a` minus arm `b` on a task."""

    a: str
    b: str
    task: str
    comparison: Comparison

    @property
    def words(self) -> str:
        """Which arm is better, by name, or that there is no evidence of it."""
        return self.comparison.words(self.a, self.b, METRICS[self.comparison.metric].better)

    @property
    def as_said(self) -> Comparison:
        """Of the better arm minus the other, as `words` names them."""
        c = self.comparison
        return c if not c.evidence or c.a_wins(METRICS[c.metric].better) else c.swapped()

    @property
    def finding(self) -> str:
        """Beside a column that names both arms."""
        return self.words if self.comparison.evidence else "no evidence of a difference"


def load(cells: Sequence[Mapping[str, Any]], base: Path) -> Results:
    """`cells` as in the study file; relative folders are relative to that file."""
    if not cells:
        raise UserMistake("the study file has no cells: there is nothing to report")
    named = Counter((cell["arm"], cell["task"], int(cell["seed"])) for cell in cells)
    for (arm, task, seed), times in named.items():
        if times > 1:
            raise UserMistake(f"cells: {arm} on {task} has seed {seed} {times} times; each counts once")
    return Results([_cell(cell, base) for cell in cells])


def _cell(cell: Mapping[str, Any], base: Path) -> Cell:
    folder = base / cell["evaluation"]
    if not (folder / "metrics.json").exists():
        raise UserMistake(f"{folder}: no metrics.json; cells name folders written by model.evaluate")
    return Cell(
        arm=cell["arm"],
        task=cell["task"],
        seed=int(cell["seed"]),
        folder=folder,
        about=json.loads((folder / "metrics.json").read_text()),
        predictions=read(folder / "predictions.parquet"),
        fingerprint=str(cell.get("fingerprint", "")),
    )
