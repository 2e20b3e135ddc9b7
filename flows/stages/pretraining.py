"""Pre-training: shards → the discriminator and the generator, as transformers folders."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from flows.parameters import Increment, Parameters
from flows.store import Manifest, Stage, Store
from model.presets import PRESETS, with_settings


def stage(parameters: Parameters, shards: Stage) -> Stage:
    chosen = parameters.pretraining
    steps = ["--steps", str(chosen.steps)] if chosen.steps else []
    settings = {**chosen.settings, "seed": str(chosen.seed)}
    return Stage(
        "pretraining",
        1,
        {
            **architecture(parameters),
            "preset.pretraining": asdict(PRESETS[parameters.preset].pretraining),
            "steps": chosen.steps,
            "seed": chosen.seed,
            "settings": chosen.settings,
        },
        {"shards": shards},
        "model.pretrain",
        lambda store, folder: [
            *["--shards", str(store.folder(shards))],
            *["--output", str(folder)],
            *["--preset", parameters.preset, "--device", chosen.device, *steps],
            *(word for field, value in settings.items() for word in ("--set", f"{field}={value}")),
        ],
        title="pre-training",
        tags=("accelerator",),
        tracked=True,
    )


@dataclass(frozen=True)
class Earlier:
    """What training goes on from."""

    encoder: Stage
    shards: Sequence[Stage]
    """Of every round, oldest first."""
    epochs: float
    """How often the first round went through its shards."""


def continued(parameters: Parameters, increment: Increment, shards: Stage, earlier: Earlier) -> Stage:
    """From the weights of an earlier pre-training, on new shards and a share of the old ones, warmed up anew."""
    chosen, ratio = parameters.pretraining, increment.replay_ratio
    settings = {**chosen.settings, "seed": str(chosen.seed)}

    def arguments(store: Store, folder: Path) -> list[str]:
        replay = ["--replay", *(str(store.folder(one)) for one in earlier.shards), "--replay_ratio", str(ratio)]
        begin = store.folder(earlier.encoder)
        steps = increment.steps or steps_for(parameters, increment, store.manifest(shards) or {}, earlier.epochs)
        return [
            *["--shards", str(store.folder(shards)), *(replay if ratio else [])],
            *["--start_from", str(begin / "discriminator"), "--start_generator_from", str(begin / "generator")],
            *["--output", str(folder)],
            *["--preset", parameters.preset, "--device", chosen.device, "--steps", str(steps)],
            *(word for field, value in settings.items() for word in ("--set", f"{field}={value}")),
        ]

    return Stage(
        "pretraining",
        1,
        {
            **architecture(parameters),
            "preset.pretraining": asdict(PRESETS[parameters.preset].pretraining),
            "steps": increment.steps,
            "epochs": increment.epochs,
            "replay_ratio": ratio,
            "seed": chosen.seed,
            "settings": chosen.settings,
        },
        {"shards": shards, "base": earlier.encoder},
        "model.pretrain",
        arguments,
        title="pre-training",
        tags=("accelerator",),
        tracked=True,
    )


def steps_for(parameters: Parameters, increment: Increment, shards: Manifest, epochs_of_the_first: float) -> int:
    """In proportion to the new dump: it is gone through as often as the first one was, or as the form says."""
    batch = with_settings(PRESETS[parameters.preset], parameters.pretraining.settings).pretraining.batch
    new_a_step = batch * (1 - increment.replay_ratio)
    epochs = increment.epochs or epochs_of_the_first
    return max(1, ceil(epochs * shards["result"]["sequences"] / new_a_step))


def shape_of(preset: str) -> dict[str, Any]:
    return asdict(PRESETS[preset].architecture)


def architecture(parameters: Parameters) -> dict[str, Any]:
    """What decides the shape of the encoder, trained or not; a preset counts by what it says, not by its name."""
    return {"preset": parameters.preset, "preset.architecture": shape_of(parameters.preset)}
