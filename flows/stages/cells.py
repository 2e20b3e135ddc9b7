"""A cell: one fine-tuning of an arm and its evaluation on test."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from amazon_electra.flows.stages.evaluation import build_evaluation_stage
from amazon_electra.flows.stages.finetuning import PART, Finetuning, build_finetuning_stage
from amazon_electra.flows.store.group import Group
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import find_arm


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

    @property
    def is_cheap(self) -> bool:
        """Return whether its arm takes seconds."""
        return find_arm(self.finetuned.parameters["arm"]).is_cheap

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


def group_cells(cells: Iterable[Cell], at_once: int) -> Iterator[Group]:
    """Yield groups of at most `at_once` cells at a time; those that combine others come last."""
    every = list(cells)
    for chosen in ([c for c in every if not c.parts], [c for c in every if c.parts]):
        yield Group(list_chains(chosen), at_once)


def list_chains(cells: Iterable[Cell]) -> list[tuple[Stage, ...]]:
    """Return the stages of the cells, without duplicates: baselines are the same for each seed."""
    chains: dict[str, tuple[Stage, ...]] = {}
    for cell in cells:
        chains.setdefault(cell.finetuned.fingerprint, cell.chain)
    return list(chains.values())
