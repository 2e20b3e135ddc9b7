"""Pre-training: shards → the discriminator and the generator, as transformers folders."""

from dataclasses import asdict
from typing import Any

from flows.parameters import Parameters
from flows.store import Stage
from model.presets import PRESETS


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


def architecture(parameters: Parameters) -> dict[str, Any]:
    """What decides the shape of the encoder, trained or not; a preset counts by what it says, not by its name."""
    return {"preset": parameters.preset, "preset.architecture": asdict(PRESETS[parameters.preset].architecture)}
