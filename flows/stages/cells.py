"""The cells of a run: arms × tasks × seeds, each one fine-tuning and its evaluation on test."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from amazon_electra.flows.configuration import form
from amazon_electra.flows.configuration.form import Arm, Parameters
from amazon_electra.flows.policy import MIN_FINETUNED, Counts, is_automatic
from amazon_electra.flows.stages.finetuning import (
    PART,
    Finetuning,
    Start,
    build_evaluation_stage,
    build_finetuning_stage,
)
from amazon_electra.flows.stages.origin import get_name
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import ADAPTED, find_arm, list_arms
from amazon_electra.model.finetuning.classes import ClassesInWords
from amazon_electra.model.finetuning.tasks import DEV_FROM
from amazon_electra.model.recipes import RECIPES

CURVE, MIN_CURVE = (50, 200, 800), 2
"""Labels of the curve, as far as there are more than twice as many labels. Fewer than MIN_CURVE
points are no curve; where one is missing it is that of the arms without an encoder alone."""
CURVE_TESTS = 1_000
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
    pretraining_seed: int | None = None
    """Of a study that pre-trains what the arm starts from."""

    @property
    def chain(self) -> tuple[Stage, ...]:
        return self.finetuned, self.evaluated

    @property
    def parts(self) -> list[Stage]:
        """The fine-tunings of other cells that its own is made of."""
        return [stage for name, stage in self.finetuned.inputs.items() if name.startswith(PART)]


def build_cell(asked: Finetuning, arm: str, labels: int = 0) -> Cell:
    """Return a cell of the arm of this name; `labels` says which point of the label curve it is."""
    task, seed = asked.task, asked.seed
    about = {"arm": arm, "task": task, "seed": str(seed)}
    title = f"{arm} · {task} · seed {seed}"
    if labels:
        about["labels"], title = str(labels), f"{title} · {labels} labels"
    finetuned = build_finetuning_stage(asked, title, about)
    return Cell(arm, task, seed, finetuned, build_evaluation_stage(finetuned), labels)


def name_arms(
    chosen: Sequence[Arm], encoder: Stage, origin: Stage | None
) -> list[tuple[str, Start]]:
    """Return the name of each arm in reports, and what its fine-tunings start from. States are read
    of the published encoder and of the adapted one; an arm that combines others takes the first
    network that is fine-tuned.
    """
    methods, name = list_arms(), get_name(origin) if origin else "pre-trained"
    network = methods["finetuned"].title
    networks = {"pre-trained": ("pre-trained", Start(encoder))}
    if origin:
        networks["pre-trained"] = network.format(f"{name}{ADAPTED}"), Start(encoder)
        networks["origin"] = network.format(name), Start(origin)
    trained = [networks[arm] for arm in chosen if arm in networks]
    networks["random"] = "random", Start(encoder, kind="random")

    def list_fits(arm: Arm) -> Iterator[tuple[str, Start]]:
        """Yield the fits of an arm: one, or one for each encoder whose states it reads."""
        method = methods.get(arm)
        if not method:
            yield from [networks[arm]] if arm in networks else []
        elif method.combines:
            for title, start in trained[:1]:
                parts = tuple(
                    start if part == "finetuned" else next(list_fits(part))[1]
                    for part in method.combines
                )
                yield method.title.format(title), Start(start.encoder, arm, parts=parts)
        elif not method.reads_encoder:
            yield method.title, Start(arm=arm)
        else:
            if origin and encoder.fingerprint != origin.fingerprint:
                yield method.title.format(f"{name}{ADAPTED}"), Start(encoder, arm)
            yield method.title.format(name), Start(origin or encoder, arm)

    return [fit for arm in chosen for fit in list_fits(arm)]


def list_cells(
    p: Parameters,
    chosen: Sequence[Arm],
    settings: Mapping[str, str],
    counts: Counts,
    corpus: Stage,
    encoder: Stage,
    origin: Stage | None = None,
    classes: Sequence[ClassesInWords] = (),
    is_curve: bool = False,
) -> Iterator[Cell]:
    """Yield the cells of a run in the order of the report; `origin` is the published encoder that
    it began with, if any. `classes` are said in words. An automatic run fine-tunes no network on a
    task with fewer than MIN_FINETUNED labels.

    `is_curve`: those of the label curve instead, the arms that cost seconds, of few labels those
    without an encoder alone, trained with fewer labels than there are and evaluated on CURVE_TESTS
    test examples at most.
    """
    arms, said = name_arms(chosen, encoder, origin), {one.task: one.phrases for one in classes}
    for task, labelled in counts.labels.items():
        points, own = [0], arms
        if is_curve or (is_automatic(p) and labelled < MIN_FINETUNED):
            own = [(name, start) for name, start in arms if find_arm(start.arm).is_cheap]
        if is_curve:
            points = [n for n in CURVE if labelled > 2 * n and p.recipe != "sample"]
            if len(points) < len(CURVE):
                own = [(name, start) for name, start in own if not start.encoder]
                points = points if len(points) >= MIN_CURVE else []
        for labels, seed, (name, start) in itertools.product(points, p.finetuning.seeds, own):
            fewer = {"n_train": str(labels), "n_test": str(CURVE_TESTS)} if labels else {}
            device = p.pretraining.finetuning_device
            own_settings = {**settings, **fewer}
            asked = Finetuning(start, task, seed, corpus, own_settings, p.recipe, device)
            yield build_cell(replace(asked, phrases=said.get(task)), name, labels)


def choose_settings(
    chosen: form.Finetuning, recipe: str, counts: Counts, length: int | None, is_published: bool
) -> dict[str, str]:
    """Return the settings of all arms in which a run differs from its recipe: a published encoder
    takes other learning rates; of few labels a dev split is too small to choose by.
    """
    settings = dict(RECIPES[recipe].finetuning_of_published) if is_published else {}
    if chosen.learning_rates:
        settings["learning_rates"] = ",".join(map(str, chosen.learning_rates))
    if chosen.labels:
        settings["n_train"] = str(chosen.labels)
    if max(counts.labels.values(), default=0) < DEV_FROM:
        settings["selection"] = "cross-validation"
    if length:
        settings["max_length"] = str(length)
    return settings


def keep_complete(cells: Iterable[Cell], store: Store) -> list[Cell]:
    """Return the cells that are evaluated, of the tasks and seeds that the first of them has."""
    complete = [cell for cell in cells if all(store.manifest(one) for one in cell.chain)]
    shared = {(cell.task, cell.seed) for cell in complete if cell.arm == complete[0].arm}
    return [cell for cell in complete if (cell.task, cell.seed) in shared]


def find_failure(cell: Cell, failed: Failed) -> Exception | None:
    """Return why a cell cannot be made, where it, or what it is made of, is among what failed."""
    sources = [cell.finetuned, *cell.finetuned.inputs.values()]
    return next((failed[one.path] for one in sources if one.path in failed), None)


def order_chains(
    cells: Iterable[Cell], at_once: int, labels: Mapping[str, int]
) -> list[tuple[Stage, ...]]:
    """Return the stages of the cells, the cheapest first, equal ones once.

    The first cell that reads an encoder computes states for others. Where several are made at once,
    what needs no states stands between, the longest training (`labels` of its task) comes before
    shorter ones, and the label curve fills the rest.
    """
    words, readers, others = list[Cell](), list[Cell](), list[Cell]()
    for cell in sorted(cells, key=lambda one: bool(one.labels)):
        arm = find_arm(cell.finetuned.config.arm)
        (others if not arm.is_cheap else readers if arm.reads_encoder else words).append(cell)
    if at_once > 1:
        others.sort(key=lambda cell: -labels.get(cell.task, 0))
        n, m = (sum(not cell.labels for cell in own) for own in (words, readers))
        order = [*words[:n], *readers[:1], *words[n:], *others[:1], *readers[1:m], *others[1:]]
        order += readers[m:]
    else:
        order = [*words, *readers, *others]
        order.sort(key=lambda cell: bool(cell.labels))
    return list({cell.finetuned.fingerprint: cell.chain for cell in order}.values())
