"""The arms of a run: where the encoder of each comes from, what is checked before anything is made,
and their cells.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.text.splits import read_shares
from amazon_electra.flows.configuration.form import Arm, Finetuning, Parameters
from amazon_electra.flows.policy import MIN_FINETUNED, Counts, is_automatic
from amazon_electra.flows.stages import finetuning
from amazon_electra.flows.stages.cells import Cell, build_cell
from amazon_electra.flows.stages.finetuning import Start
from amazon_electra.flows.stages.origin import get_name
from amazon_electra.flows.stages.text_length import DEFAULT_TOKENS, TextLength, find_positions
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.model.arms import ADAPTED, find_arm
from amazon_electra.model.arms import list_arms as list_kinds
from amazon_electra.model.finetuning.tasks import DEV_FROM
from amazon_electra.model.recipes import RECIPES

CURVE = (50, 200, 800)
"""Labels of the curve, as far as there are more than twice as many labels. Fewer than MIN_CURVE
points are no curve; where one is missing it is that of the arms without an encoder alone."""
MIN_CURVE = 2
CURVE_TESTS = 1_000


def check_split(split: str) -> None:
    """Raise UserError, before anything is made, where fine-tuning would fail hours later."""
    shares = read_shares(split)
    if empty := [side for side in ("train", "dev", "test") if not shares[side]]:
        raise UserError(
            f"fine-tuning needs at least 1 for each of "
            f"train, dev and test, here {' and '.join(empty)} would be empty",
            "corpus.split",
            split,
        )


@dataclass(frozen=True)
class RunArm:
    """An arm as a run compares it."""

    name: str
    """How reports call it."""
    start: Start
    chosen: Arm
    """As the form names it."""


def list_arms(
    chosen: Sequence[Arm],
    store: Store,
    encoder: Stage,
    origin: Stage | None = None,
    others: Sequence[Stage] = (),
) -> list[RunArm]:
    """Return the arms in the order chosen.

    States are read of the published encoder, of the adapted one and of the published `others`; an
    arm that combines others takes the first network that is fine-tuned.
    """
    sources: dict[Arm, Stage | None] = {
        "pre-trained": encoder,
        "random": encoder,
        "origin": origin,
    }
    name = get_name(origin) if origin else "pre-trained"
    methods = list_kinds()
    network_title = methods["finetuned"].title
    names = {"pre-trained": f"{name}{ADAPTED}", "origin": name} if origin else {}
    names = {arm: network_title.format(encoder) for arm, encoder in names.items()}
    networks = [
        RunArm(
            names.get(arm, arm), Start(source, kind="random" if arm == "random" else "trained"), arm
        )
        for arm in chosen
        if (source := sources.get(arm))
    ]
    is_adapted = bool(origin and encoder.fingerprint != origin.fingerprint)

    def list_fits(arm: Arm) -> Iterator[RunArm]:
        """Yield the fits of an arm of model/arms: one, or one for each encoder it reads."""
        method = methods[arm]
        if method.combines:
            network = next((one for one in networks if one.start.kind == "trained"), None)
            if network:
                fits = [
                    network if part == "finetuned" else next(list_fits(part))
                    for part in method.combines
                ]
                parts = tuple(fit.start for fit in fits)
                title = method.title.format(network.name)
                yield RunArm(title, Start(network.start.encoder, arm, parts=parts), arm)
        elif not method.reads_encoder:
            yield RunArm(method.title, Start(arm=arm), arm)
        else:
            if is_adapted:
                yield RunArm(method.title.format(f"{name}{ADAPTED}"), Start(encoder, arm), arm)
            yield RunArm(method.title.format(name), Start(origin or encoder, arm), arm)
            for one in others:
                yield RunArm(method.title.format(get_name(one)), Start(one, arm), arm)

    found: list[RunArm] = []
    for arm in chosen:
        found += (
            list_fits(arm) if arm in methods else [one for one in networks if one.chosen == arm]
        )
    return found


def list_cells(
    p: Parameters,
    chosen: Sequence[Arm],
    settings: Mapping[str, str],
    counts: Counts,
    store: Store,
    corpus: Stage,
    encoder: Stage,
    origin: Stage | None = None,
    others: Sequence[Stage] = (),
    is_curve: bool = False,
) -> Iterator[Cell]:
    """Yield the cells of a run in the order of the report; `origin` is the published encoder that
    it began with, if any, `others` those whose states are read beside it.

    An automatic run fine-tunes no network on a task with fewer than MIN_FINETUNED labels.

    `is_curve`: those of the label curve instead, the arms that cost seconds, of few labels those
    without an encoder alone, trained with fewer labels than there are and evaluated on CURVE_TESTS
    test examples at most.
    """
    arms = list_arms(chosen, store, encoder, origin, others)
    for task in p.finetuning.tasks:
        points, own, labelled = [0], arms, counts.labels.get(task, 0)
        if is_curve or (is_automatic(p) and labelled < MIN_FINETUNED):
            own = [arm for arm in arms if find_arm(arm.start.arm).is_cheap]
        if is_curve:
            points = [n for n in CURVE if labelled > 2 * n and p.recipe != "sample"]
            if len(points) < len(CURVE):
                own = [arm for arm in own if not find_arm(arm.start.arm).reads_encoder]
                points = points if len(points) >= MIN_CURVE else []
        for labels, seed, arm in itertools.product(points, p.finetuning.seeds, own):
            few = {"n_train": str(labels), "n_test": str(CURVE_TESTS)} if labels else {}
            own_settings = {**settings, **few}
            if arm.start.encoder and arm.start.encoder in others:
                positions = find_positions(store, arm.start.encoder)
                if positions and positions < int(settings.get("max_length", DEFAULT_TOKENS)):
                    own_settings["max_length"] = str(positions)
            device = p.pretraining.finetuning_device
            asked = finetuning.Finetuning(
                arm.start, task, seed, corpus, own_settings, p.recipe, device
            )
            yield build_cell(asked, arm.name, labels=labels)


def pair_adapted(arms: Collection[str]) -> list[tuple[str, str]]:
    """Return the names of those arms that differ in the encoder alone, adapted and as published."""
    pairs = [(arm, arm.replace(ADAPTED, "", 1)) for arm in arms if ADAPTED in arm]
    return [(a, b) for a, b in pairs if b in arms]


def choose_settings(
    chosen: Finetuning, recipe: str, counts: Counts, length: TextLength, is_published: bool
) -> dict[str, str]:
    """Return the settings of fine-tuning in which a run differs from its recipe: of all its arms,
    since a published encoder takes other learning rates than one that a recipe trains, and may have
    positions for fewer tokens; and of few labels a dev split is too small to choose by.
    """
    rates = ",".join(str(rate) for rate in chosen.learning_rates)
    has_few = max(counts.labels.values(), default=0) < DEV_FROM
    return {
        **(RECIPES[recipe].finetuning_of_published if is_published else {}),
        **({"learning_rates": rates} if rates else {}),
        **({"n_train": str(chosen.labels)} if chosen.labels else {}),
        **({"selection": "cross-validation"} if has_few else {}),
        **({"max_length": str(length.tokens)} if length.tokens != length.default else {}),
    }
