"""A cell: one fine-tuning of an arm and its evaluation on test."""

from collections.abc import Iterable
from dataclasses import dataclass

from amazon_electra.flows.stages.evaluation import build_evaluation_stage
from amazon_electra.flows.stages.finetuning import PART, Finetuning, build_finetuning_stage
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import find_arm

Failed = dict[str, Exception]
"""Path of a stage → why it failed."""


@dataclass(frozen=True)
class Cell:
    """One fine-tuning of an arm and its evaluation."""

    arm: str
    task: str
    seed: int
    finetuned: Stage
    evaluated: Stage
    labels: int = 0
    """Labels it is trained with, a point of the label curve; 0: all."""

    @property
    def chain(self) -> tuple[Stage, ...]:
        return self.finetuned, self.evaluated

    def is_made_of(self, encoder: Stage) -> bool:
        sources = {stage.fingerprint for stage in self.finetuned.inputs.values()}
        return encoder.fingerprint in sources

    @property
    def parts(self) -> list[Stage]:
        """The fine-tunings of other cells that its own is made of."""
        return [stage for name, stage in self.finetuned.inputs.items() if name.startswith(PART)]

    def is_among(self, cells: Iterable["Cell"]) -> bool:
        return self.finetuned.fingerprint in {cell.finetuned.fingerprint for cell in cells}


def build_cell(asked: Finetuning, arm: str, labels: int = 0) -> Cell:
    """Return a cell of the arm of this name; `labels` says which point of the label curve it is."""
    task, seed = asked.task, asked.seed
    about = {"arm": arm, "task": task, "seed": str(seed)}
    title = f"{arm} · {task} · seed {seed}"
    if labels:
        about["labels"], title = str(labels), f"{title} · {labels} labels"
    finetuned = build_finetuning_stage(asked, title, about)
    evaluated = build_evaluation_stage(finetuned)
    return Cell(arm, task, seed, finetuned, evaluated, labels=labels)


def keep_complete(cells: Iterable[Cell], store: Store) -> list[Cell]:
    """Return the cells that are evaluated, of the tasks and seeds that the first of them has."""
    complete = [cell for cell in cells if all(store.manifest(one) for one in cell.chain)]
    shared = {(cell.task, cell.seed) for cell in complete if cell.arm == complete[0].arm}
    return [cell for cell in complete if (cell.task, cell.seed) in shared]


def find_failure(cell: Cell, failed: Failed) -> Exception | None:
    """Return why a cell cannot be made, where it, or what it is made of, is among what failed."""
    sources = [cell.finetuned, *cell.finetuned.inputs.values()]
    return next((failed[one.path] for one in sources if one.path in failed), None)


def order_chains(cells: Iterable[Cell], at_once: int) -> list[tuple[Stage, ...]]:
    """Return the stages of the cells, the cheapest first, and without duplicates: baselines are the
    same for each seed.

    The first cell that reads an encoder computes states for others of its encoder. Where several
    are made at once, what needs no states stands between.
    """
    words, readers, others = list[Cell](), list[Cell](), list[Cell]()
    for cell in sorted(cells, key=lambda one: bool(one.labels)):
        arm = find_arm(cell.finetuned.config.arm)
        (others if not arm.is_cheap else readers if arm.reads_encoder else words).append(cell)
    if at_once > 1:
        n = sum(not cell.labels for cell in words)
        order = [*words[:n], *readers[:1], *words[n:], *others[:1], *readers[1:], *others[1:]]
    else:
        order = [*words, *readers, *others]
        order.sort(key=lambda cell: bool(cell.labels))
    return list({cell.finetuned.fingerprint: cell.chain for cell in order}.values())
