"""A small run on the XLA device for the processes that count and shard."""

from pathlib import Path

from model.device import open_device
from model.pretraining.assembly import build_training
from model.pretraining.input.sequences import Shards
from model.pretraining.loop import Training
from model.recipes import RECIPES, apply_settings

SETTINGS = {
    "layers": "2",
    "hidden": "32",
    "intermediate": "64",
    "embedding": "16",
    "batch": "8",
    "precision": "fp32",
}


def training(shards: str, dropout: float, kind: str = "xla") -> Training:
    recipe = apply_settings(RECIPES["sample"], SETTINGS | {"dropout": str(dropout)})
    device = open_device(kind, recipe.pretraining.precision)
    made = build_training(recipe, Shards.open(Path(shards)), device, Path("unused"))
    made.model.train()
    return made
