"""What an automatic run does: which arms it compares and whether it adapts an encoder, where the
form leaves that open.

The counts decide: those of the corpus once it is made, before that an estimate by the first records
of the dump. Each decision has its reason as a sentence; the dry run prints it, the run logs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.flows.configuration.form import CONTRASTIVE, Arm, Parameters
from amazon_electra.model.arms import list_arms, list_methods

MIN_FINETUNED = 2_000
"""Labels of the task with most from which on an automatic run fine-tunes: with 800 that was no
better than `joined`, with 3,000 it was (docs/results.md)."""
MIN_TITLES = 2_000
"""Usable titles in the pretrain split from which on an automatic run adapts by contrast: 4,067
pairs gained (docs/results.md); fewer were not measured."""
TOKENS, PASSES = 30_000_000, 3
"""Of an adaptation to text: so many tokens, or passes over the dump's text where that is less."""
MIN_TOKENS = 3_000_000
"""Fewer gained nothing in any study (docs/results.md)."""

Adaptation = Literal["none", "contrast", "text"]
"""How the run trains an encoder: not at all, on pairs of title and body, or on packed text."""


@dataclass(frozen=True)
class Counts:
    """What decides about an automatic run."""

    labels: Mapping[str, int]
    """Reviews with a label, by task."""
    titles: int
    """Usable titles in the pretrain split; of a corpus counted up to MIN_TITLES."""
    tokens: float
    """Tokens of the text in the pretrain split, about."""
    is_estimated: bool = False
    """Whether the first records of the dump say so, not its corpus."""
    left_out: Sequence[str] = ()
    """Sentences about tasks with too few labels."""


@dataclass(frozen=True)
class Decision:
    """What a run does."""

    arms: tuple[Arm, ...]
    adaptation: Adaptation
    reasons: tuple[str, ...]


def decide(p: Parameters, counts: Counts) -> Decision:
    """Return the arms and the adaptation of a run, and why."""
    arms, reasons = list_arms_of_form(p), list(counts.left_out)
    if is_automatic(p) and counts.labels:
        labels = max(counts.labels.values())
        labels = min(labels, p.finetuning.labels or labels)
        reason = f"fine-tuning: {'about ' * counts.is_estimated}{labels:,} labels"
        if labels < MIN_FINETUNED:
            arms = keep_cheap(arms)
            reason = f"no {reason}, fewer than {MIN_FINETUNED:,} (`--effort full` fine-tunes)"
        reasons.append(reason)
    adaptation, reason = choose_adaptation(p, arms, counts)
    if adaptation == "none" and p.pretraining.start_from:
        arms = [arm for arm in arms if arm != "pre-trained"]
    if adaptation == "contrast" and not p.finetuning.arms:
        # The regressions on both encoders have shown for seconds what the adaptation was worth.
        arms = [arm for arm in arms if arm != "origin"]
    return Decision(tuple(arms), adaptation, (*reasons, *filter(None, [reason])))


def is_automatic(p: Parameters) -> bool:
    """Return whether the labels decide about fine-tuning: nobody asks for arms or an effort."""
    return p.recipe == "published" and not p.finetuning.arms and p.effort == "auto"


def list_arms_of_form(p: Parameters) -> list[Arm]:
    """Return the arms that the form names, or else the new encoder, the one to beat, and methods.

    Raises UserError where the form asks for what none of them does.
    """
    start = p.pretraining.start_from
    default = ["pre-trained", "origin" if start else "random", *list_methods(bool(start))]
    arms = list(p.finetuning.arms) or default
    if p.effort != "quick":
        return arms
    why = "takes a published encoder, `pretraining.start_from`, and an arm of seconds"
    require(start and keep_cheap(arms), why, "effort", "quick")
    return keep_cheap(arms)


def keep_cheap(arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms that take seconds."""
    methods = list_arms()
    return [arm for arm in arms if arm in methods and methods[arm].is_cheap]


def choose_adaptation(p: Parameters, arms: Sequence[Arm], counts: Counts) -> tuple[Adaptation, str]:
    """Return how a run with these arms trains an encoder, and why where the counts decide."""
    chosen, methods = p.pretraining, list_arms()
    is_asked = bool(chosen.objective or chosen.steps)
    others = [arm for arm in arms if arm != "origin"]
    is_read = any(arm not in methods or methods[arm].reads_encoder for arm in others)
    if not (is_read or is_asked):
        return "none", ""
    if chosen.objective == CONTRASTIVE:
        return "contrast", ""
    if not chosen.start_from:
        return "text", ""
    if p.effort == "quick" and not is_asked:
        return "none", "no adaptation with `--effort quick`"
    is_open = p.recipe == "published" and not is_asked
    if is_open and not chosen.settings and counts.titles >= MIN_TITLES:
        return "contrast", f"adaptation by contrast: {MIN_TITLES:,} titles or more"
    if not is_open or "pre-trained" in p.finetuning.arms:
        return "text", ""
    tokens = PASSES * counts.tokens
    measured = f"{PASSES} passes over the text are about {round(tokens, -3):,.0f} tokens"
    if tokens >= MIN_TOKENS:
        return "text", f"adaptation to the text: {measured}"
    return "none", (
        f"no adaptation: {counts.titles:,} titles, and contrast needs {MIN_TITLES:,}; {measured}, "
        f"and training on it needs {MIN_TOKENS:,} (`pretraining.steps` trains all the same)"
    )
