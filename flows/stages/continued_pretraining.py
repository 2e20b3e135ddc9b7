"""Pre-training that goes on from an earlier one, on the sequences of an added dump."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from amazon_electra.flows.configuration.form import Increment, Parameters
from amazon_electra.flows.stages.pretraining import (
    Pretraining,
    build_training,
    describe_training,
)
from amazon_electra.flows.store.stage import Stage
from amazon_electra.model.recipes import OLD_HEAD_SETTINGS

NEW_HEAD_FIELDS = ("head_steps", "head_tokens", "trunk_learning_rate")


@dataclass(frozen=True)
class EarlierTraining:
    """What training goes on from."""

    encoder: Stage
    shards: Sequence[Stage]
    """Of every round, oldest first."""
    epochs: float
    """How often the first round went through its shards."""
    dev: Stage | None = None
    """Dev shards of the first round: all rounds are measured on the same ones."""
    labels: Stage | None = None
    """The first round's corpus, where that round began with a published encoder: on its labels a
    state is compared with the one that training goes on from.
    """


def build_continued_stage(
    parameters: Parameters, increment: Increment, shards: Stage, earlier: EarlierTraining
) -> Pretraining:
    """Return a pre-training from the weights of an earlier one, on new shards and a share of the
    old ones, warmed up anew.
    """
    training = replace(describe_training(parameters), dev=earlier.dev)
    inputs = {"base": earlier.encoder}
    inputs |= {"corpus": earlier.labels} if earlier.labels and training.is_probed else {}
    return build_training(
        training,
        shards,
        inputs,
        {f"replay {number}": one for number, one in enumerate(earlier.shards, 1)},
        steps=increment.steps,
        epochs=earlier.epochs,
        replay_ratio=increment.replay_ratio,
    )


def inherit_rates(before: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which a published encoder that was adapted is gone on with, by those
    of its adaptation: its head is trained by now, so all of it has the rate that the trunk had.
    """
    kept = {name: text for name, text in before.items() if name not in NEW_HEAD_FIELDS}
    trunk = float(before.get("trunk_learning_rate") or 0)
    if trunk or "learning_rate" not in before:
        kept["learning_rate"] = str(trunk) if trunk else OLD_HEAD_SETTINGS["learning_rate"]
    return kept
