"""A small run on the XLA device for the processes that count and shard."""

from pathlib import Path

from model.device import open_device
from model.presets import PRESETS, apply_settings
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.loop import Training

SETTINGS = {
    "layers": "2",
    "hidden": "32",
    "intermediate": "64",
    "embedding": "16",
    "batch": "8",
    "precision": "fp32",
}


def training(shards: str, dropout: float, kind: str = "xla") -> Training:
    preset = apply_settings(PRESETS["tiny"], SETTINGS | {"dropout": str(dropout)})
    device = open_device(kind, preset.pretraining.precision)
    made = build_training(preset, Shards.open(Path(shards)), device, Path("unused"))
    made.model.train()
    return made
