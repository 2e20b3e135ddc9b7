"""A tiny published encoder, and shards of its vocabulary."""

from pathlib import Path

from tests.model.encoders.checkpoints import write_checkpoint
from tests.model.pretraining.runs import pretrain
from tests.model.synthetic_shards import write_shards

SETTINGS = {"batch": 8, "dropout": 0.1, "log_every": 1, "checkpoint_every": 5, "precision": "fp32"}
SETTINGS |= {"learning_rate": 1e-3}


def write_all(folder: Path) -> Path:
    """Write `shards` and `bert` into the folder and return it."""
    write_shards(folder / "shards", sequences=100)
    write_checkpoint(folder / "bert", "BERT with its head")
    return folder


def train(made: Path, output: Path, *words: object, steps: int = 20, **settings: object) -> dict:
    """Train from the BERT in `made`."""
    words = ("--start-from", made / "bert", *words)
    return pretrain(made / "shards", output, *words, steps=steps, **SETTINGS | settings)
