"""Pre-training that goes on from an earlier one, on the sequences of an added dump."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from flows.configuration.form import Increment, Parameters
from flows.stages.pretraining import (
    PretrainingRequest,
    build_stage,
    describe_training,
    locate_exported_folder,
)
from flows.store.store import Stage, Store
from model.recipes import OLD_HEAD_SETTINGS

OF_A_NEW_HEAD = ("head_steps", "head_tokens", "trunk_learning_rate")


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
) -> Stage:
    """Return a pre-training from the weights of an earlier one, on new shards and a share of the
    old ones, warmed up anew.
    """
    training, ratio = describe_training(parameters), increment.replay_ratio
    training = replace(training, dev=earlier.dev)
    own = {"steps": increment.steps, "replay_ratio": ratio}
    more = partial(list_continuation, training, increment, shards, earlier)
    inputs = {"shards": shards, "base": earlier.encoder}
    inputs |= {"corpus": earlier.labels} if earlier.labels and training.is_probed else {}
    return build_stage(training, inputs, own, more)


def list_continuation(
    training: PretrainingRequest,
    increment: Increment,
    shards: Stage,
    earlier: EarlierTraining,
    store: Store,
) -> list[str]:
    """Return the options by which training goes on from an earlier one; unless the form says the
    steps, the new dump is gone through as often as the first one was.
    """
    replay = [
        "--replay",
        *(str(store.fetch(one)) for one in earlier.shards),
        "--replay_ratio",
        str(increment.replay_ratio),
    ]
    begin = locate_exported_folder(store, earlier.encoder)
    generator = begin.with_name("generator")
    new_a_step = training.resolved.pretraining.batch * (1 - increment.replay_ratio)
    sequences = (store.manifest(shards) or {"result": {"sequences": 0}})["result"]["sequences"]
    steps = increment.steps or max(1, ceil(earlier.epochs * sequences / new_a_step))
    return [
        *(replay if increment.replay_ratio else []),
        *["--start_from", str(begin)],
        *(["--start_generator_from", str(generator)] if generator.is_dir() else []),
        *["--steps", str(steps)],
    ]


def inherit_rates(before: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which a published encoder that was adapted is gone on with, by those
    of its adaptation: its head is trained by now, so all of it has the rate that the trunk had.
    """
    kept = {name: text for name, text in before.items() if name not in OF_A_NEW_HEAD}
    trunk = float(before.get("trunk_learning_rate", 0))
    if trunk or "learning_rate" not in before:
        kept["learning_rate"] = str(trunk) if trunk else OLD_HEAD_SETTINGS["learning_rate"]
    return kept
