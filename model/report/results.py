"""Brings a study's evaluations together: arms × tasks, seeds pooled, differences tested."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.nesting import find_json, read_json
from amazon_electra.model.arms.out_of_fold import FILE, OutOfFold
from amazon_electra.model.evaluation import significance
from amazon_electra.model.evaluation.metrics import METRICS, rank_dev_metrics
from amazon_electra.model.evaluation.predictions import Predictions, read_predictions
from amazon_electra.model.evaluation.significance import Comparison, SeedPair
from amazon_electra.model.report.inputs import CellFacts, ReportInput


@dataclass(frozen=True)
class Cell:
    """One evaluated fine-tuning."""

    arm: str
    task: str
    seed: int
    folder: Path
    about: Mapping[str, Any] = field(repr=False)
    """The cell's metrics.json."""
    predictions: Predictions = field(repr=False)
    finetuned: Path = Path()
    """The model folder that was evaluated."""
    pretraining_seed: int | None = None
    """None where the arm has one pre-training, or none."""

    @cached_property
    def result(self) -> dict[str, Any]:
        """The fine-tuning's result.json; empty where the folder has none."""
        return dict(find_json(self.finetuned / "result.json"))

    @property
    def dev(self) -> dict[str, float]:
        """The metrics on dev, the main one first; empty where the folder does not have them."""
        return dict(self.result.get("dev", {}))

    @cached_property
    def held_out(self) -> OutOfFold:
        """Predictions that chose it, of examples that it did not learn from."""
        return OutOfFold.load(self.finetuned)

    @property
    def trained_with(self) -> int:
        """The labels it learnt from, its teacher's where that is all it heard; 0: not said."""
        result, teacher = self.result, Path(self.result.get("teacher") or "") / "result.json"
        if result.get("teacher") and result["settings"]["soft_weight"] == 1 and teacher.is_file():
            result = read_json(teacher)
        return int(result.get("n_train", 0))

    @property
    def label_budget(self) -> str:
        """The labels that it read, of train and of dev; all in one where held-out ones are trained
        on too, and a dash where the folder does not say.
        """
        held_out, read = self.result.get("n_dev"), self.result.get("n_labels", 0)
        if not held_out:
            return "–"
        is_shared = 0 < read < self.trained_with + held_out
        return f"{read:,}" if is_shared else f"{self.trained_with:,} + {held_out:,}"

    @property
    def seed_pair(self) -> SeedPair:
        return self.pretraining_seed, self.seed


@dataclass(frozen=True)
class Results:
    """The cells of a study: arms × tasks × seeds, evaluated on the same test examples."""

    cells: Sequence[Cell]
    untrained: frozenset[str] = frozenset()
    """Arms whose encoder is random: they have no checkpoint."""
    _pooled: dict[tuple[str, str], dict[str, dict[str, float]]] = field(
        default_factory=dict, repr=False
    )

    @property
    def arms(self) -> list[str]:
        """The arms in the order of the study: its question is about the first."""
        return list(dict.fromkeys(cell.arm for cell in self.cells))

    @property
    def tasks(self) -> list[str]:
        """The tasks' names in the study, in its order."""
        return list(dict.fromkeys(cell.task for cell in self.cells))

    def list_cells(self, arm: str, task: str) -> list[Cell]:
        """Return the cells of an arm on a task by seeds, none where it was not run there."""
        return sorted(
            (c for c in self.cells if c.arm == arm and c.task == task),
            key=lambda c: (c.pretraining_seed or 0, c.seed),
        )

    def count_seeds(self, arm: str, task: str) -> str:
        """Return the number of seeds, for example `3`, or `3 × 3` with several pre-trainings."""
        cells = self.list_cells(arm, task)
        if len({cell.folder for cell in cells}) == 1:  # a baseline on all labels has no seed
            return "1"
        pretrainings = len({cell.pretraining_seed for cell in cells})
        if pretrainings < 2:
            return str(len(cells))
        return f"{pretrainings} × {len(cells) / pretrainings:g}"

    @property
    def is_cross_validated(self) -> bool:
        """Whether held-out training examples chose the arms, and there is no dev split."""
        settings = [cell.result.get("settings", {}) for cell in self.cells]
        return any(one.get("selection") == "cross-validation" for one in settings)

    def read_about(self, task: str) -> Mapping[str, Any]:
        """Return metrics.json of the first cell of a task."""
        return next(c for c in self.cells if c.task == task).about

    def list_metrics(self, task: str) -> list[str]:
        """Return names in model/evaluation/metrics.py, the main metric first."""
        return list(self.read_about(task)["metrics"])

    def get_main_metric(self, task: str) -> str:
        """Return the metric by which arms are compared."""
        return self.read_about(task)["main_metric"]

    def pool_metrics(self, arm: str, task: str) -> dict[str, dict[str, float]]:
        """Return each metric's mean over seeds with its interval, none where there is no cell."""
        if (arm, task) not in self._pooled:
            cells = self.list_cells(arm, task)
            predictions = [cell.predictions for cell in cells]
            seeds = [cell.seed_pair for cell in cells]
            self._pooled[arm, task] = {
                metric: significance.pool_seeds(METRICS[metric], predictions, seeds)
                for metric in (self.list_metrics(task) if cells else [])
            }
        return self._pooled[arm, task]

    def find_best_arm(self, task: str, without: str = "") -> str:
        """Return the best arm of all but one, as model.export chooses it: by the predictions of
        examples that no arm learnt from, or else by the metrics on dev; empty where no cell says.
        """
        cells = [cell for cell in self.cells if cell.task == task and cell.arm != without]
        if cells and all((cell.finetuned / FILE).is_file() for cell in cells):
            from amazon_electra.model.evaluation.choice import rank_arms  # loads torch

            return rank_arms(cells)[0].arm
        ranks: dict[str, tuple[float, ...]] = {}
        for arm in dict.fromkeys(cell.arm for cell in cells):
            dev = [cell.dev for cell in cells if cell.arm == arm]
            if all(dev):
                ranks[arm] = tuple(np.mean([rank_dev_metrics(one) for one in dev], axis=0))
        return max(ranks, key=lambda arm: ranks[arm], default="")

    def compare_pairs(self, pairs: Sequence[tuple[str, str]] | None = None) -> list["Difference"]:
        """Compare pairs of arms, or the first arm with each of the others, on every task by its
        main metric, Holm-corrected over all. UserError where two arms have no seed in common.
        """
        pairs = pairs or [(self.arms[0], other) for other in self.arms[1:]]
        compared: list[Difference] = []
        for a, b in pairs:
            before = len(compared)
            for task in self.tasks:
                seeds, of_a, of_b = self.pair_seeds(a, b, task)
                if not seeds:
                    continue
                metric = METRICS[self.get_main_metric(task)]
                c = significance.compare_arms(metric, of_a, of_b, seeds)
                one_checkpoint = c.pretraining_seeds == 1 and not {a, b} <= self.untrained
                compared.append(Difference(a, b, task, c, one_checkpoint))
            has_both = len(compared) > before
            require(has_both, f"comparisons: {a!r} and {b!r} have no task and seed in common")
        taking_part = {(d.task, arm) for d in compared for arm in (d.a, d.b)}
        independent = len(taking_part) - len({d.task for d in compared})
        corrected = significance.correct_comparisons([d.comparison for d in compared], independent)
        return [replace(d, comparison=c) for d, c in zip(compared, corrected, strict=True)]

    def pair_seeds(
        self, a: str, b: str, task: str
    ) -> tuple[list[SeedPair], list[Predictions], list[Predictions]]:
        """Return seeds that two arms share, with predictions; an untrained arm meets every one."""
        own_a, own_b = (
            {cell.seed_pair: cell.predictions for cell in self.list_cells(arm, task)}
            for arm in (a, b)
        )
        of_a = repeat_over_pretrainings(own_a, own_b)
        of_b = repeat_over_pretrainings(own_b, own_a)
        seeds = [pair for pair in of_a if pair in of_b]
        return seeds, [of_a[pair] for pair in seeds], [of_b[pair] for pair in seeds]


def repeat_over_pretrainings(
    arm: Mapping[SeedPair, Predictions], other: Mapping[SeedPair, Predictions]
) -> Mapping[SeedPair, Predictions]:
    if any(pretraining is not None for pretraining, _ in arm):
        return arm
    return {(p, seed): arm[None, seed] for p, seed in other if (None, seed) in arm}


@dataclass(frozen=True)
class Difference:
    """Arm `a` minus arm `b` on a task."""

    a: str
    b: str
    task: str
    comparison: Comparison
    one_checkpoint: bool = False
    """Whether there was one pre-training, so that nothing is known of others."""

    @property
    def words(self) -> str:
        """The finding: which arm is better, or that there is no evidence of a difference."""
        if not self.comparison.is_significant:
            return f"no evidence of a difference between {self.a} and {self.b}"
        better, other = (self.a, self.b) if self.comparison.is_a_better else (self.b, self.a)
        return f"{better} is better than {other}"

    @property
    def oriented(self) -> Comparison:
        """The better arm minus the other, in the order of `words`; unchanged without evidence."""
        c = self.comparison
        return c.swap_arms() if c.is_significant and not c.is_a_better else c


def load_results(study: ReportInput, cells: Sequence[CellFacts], base: Path) -> Results:
    """Load cells of a study; relative folders are relative to `base`, its file's folder."""
    loaded = [load_cell(cell, base) for cell in cells]
    for (arm, task, pair), times in Counter((c.arm, c.task, c.seed_pair) for c in loaded).items():
        of = "" if pair[0] is None else f" of pre-training seed {pair[0]}"
        require(times < 2, f"cells: {arm} on {task} has seed {pair[1]}{of} {times} times")
    return Results(loaded, frozenset(arm.name for arm in study.arms if arm.is_random))


def load_cell(cell: CellFacts, base: Path) -> Cell:
    """Load an evaluation; UserError where the folder is none."""
    folder = base / cell.evaluation
    is_there = (folder / "metrics.json").exists()
    require(is_there, "no metrics.json there, as model.evaluate writes it", "evaluation", folder)
    about = read_json(folder / "metrics.json")
    return Cell(
        cell.arm,
        cell.task,
        cell.seed,
        folder,
        about,
        read_predictions(folder / "predictions.parquet"),
        base / cell.finetuned if cell.finetuned else Path(about.get("model", "")),
        cell.pretraining_seed,
    )
