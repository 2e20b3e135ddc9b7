"""Pre-training: shards → the discriminator and the generator, as transformers folders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from beam_jobs.command import UserMistake
from flows.deployments import ACCELERATOR
from flows.parameters import Increment, Parameters
from flows.processes import run_job
from flows.store import Manifest, Stage, Store
from model.presets import PRESETS, with_settings


def demand_device(parameters: Parameters) -> None:
    """Told before anything is made: training comes hours after the data."""
    device = parameters.pretraining.device
    if device in ("auto", "cpu"):
        return
    with TemporaryDirectory() as folder:
        try:
            run_job("model.device", [device], Path(folder, "log.txt"))
        except UserMistake as missing:
            raise UserMistake(str(missing).replace("--device ", "device=")) from None


def stage(parameters: Parameters, shards: Stage) -> Stage:
    steps = parameters.pretraining.steps
    length = ["--steps", str(steps)] if steps else []
    return _stage(parameters, {"shards": shards}, {"steps": steps}, lambda store: length)


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
    ratio = increment.replay_ratio

    def more(store: Store) -> list[str]:
        replay = ["--replay", *(str(store.folder(one)) for one in earlier.shards), "--replay_ratio", str(ratio)]
        begin = store.folder(earlier.encoder)
        steps = increment.steps or steps_for(parameters, increment, store.manifest(shards) or {}, earlier.epochs)
        return [
            *(replay if ratio else []),
            *["--start_from", str(begin / "discriminator"), "--start_generator_from", str(begin / "generator")],
            *["--steps", str(steps)],
        ]

    own = {"steps": increment.steps, "epochs": increment.epochs, "replay_ratio": ratio}
    return _stage(parameters, {"shards": shards, "base": earlier.encoder}, own, more)


def _stage(
    parameters: Parameters,
    inputs: Mapping[str, Stage],
    own: Mapping[str, Any],
    more: Callable[[Store], list[str]],
) -> Stage:
    """What all pre-trainings share; `own` parameters and `more` arguments are this one's."""
    chosen = parameters.pretraining
    settings = {**chosen.settings, "seed": str(chosen.seed)}
    return Stage(
        "pretraining",
        2,
        {
            **architecture(parameters),
            "preset.pretraining": asdict(PRESETS[parameters.preset].pretraining),
            **own,
            "seed": chosen.seed,
            "settings": chosen.settings,
        },
        inputs,
        "model.pretrain",
        lambda store, folder: [
            *["--shards", str(store.folder(inputs["shards"]))],
            *["--output", str(folder)],
            *["--preset", parameters.preset, "--device", chosen.device, *more(store)],
            *(word for field, value in settings.items() for word in ("--set", f"{field}={value}")),
        ],
        title="pre-training",
        tags=(ACCELERATOR,),
        tracked=True,
    )


def exported(parameters: Parameters) -> str:
    """The folder of the encoder that is there to be fine-tuned (model/pretraining/outputs.py)."""
    return "discriminator" if objective(parameters) == "electra" else "encoder"


def objective(parameters: Parameters) -> str:
    return parameters.pretraining.settings.get("objective", PRESETS[parameters.preset].pretraining.objective)


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
