"""Small pre-trainings in this process: whole runs, and some whose steps a test takes itself."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import pretrain as job
from amazon_electra.model.device import open_device
from amazon_electra.model.pretraining.assembly import build_training
from amazon_electra.model.pretraining.input.batches import Arrays
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.loop import Training, run_step
from amazon_electra.model.recipes import RECIPES, apply_settings
from amazon_electra.model.tracking.metrics_log import read_metrics

SHAPE = {"layers": 1, "hidden": 32, "intermediate": 64, "embedding": 32, "batch": 8}


def list_words(
    shards: Path, output: Path, *words: object, steps: int | None = None, **settings: object
) -> list[str]:
    """Return the command line of a run on one thread of the CPU; `settings` are options too."""
    fixed = ["--shards", shards, "--output", output, "--recipe", "sample", "--device", "cpu"]
    fixed += ["--threads", 1, *([] if steps is None else ["--steps", steps])]
    sets = (f"--{name}={value}" for name, value in settings.items())
    return [str(word) for word in (*fixed, *sets, *words)]


def pretrain(
    shards: Path, output: Path, *words: object, steps: int | None = None, **settings: object
) -> dict[str, Any]:
    """Run what `list_words` returns."""
    return call_job(job.pretrain, list_words(shards, output, *words, steps=steps, **settings))


def add_generator(folder: str | Path, generator: str | Path) -> Path:
    """Put a generator beside its discriminator, as model.origin does; return the folder."""
    shutil.copytree(generator, Path(folder, "generator"))
    Path(folder, "generator", "origin.json").write_text("{}")
    return Path(folder)


def build(
    shards: Path | Shards, output: Path, kind: str = "cpu", *, dev: Shards | None = None, **settings
) -> Training:
    """Return a training at its first step; in fp32, unless the settings say otherwise."""
    texts = {name: str(value) for name, value in settings.items()}
    recipe = apply_settings(RECIPES["sample"], {"precision": "fp32"} | texts)
    opened = shards if isinstance(shards, Shards) else Shards.open(shards)
    device = open_device(kind, recipe.pretraining.precision)
    return build_training(recipe, opened, device, output, dev=dev)


def take_steps(training: Training, batches: Iterable[Arrays]) -> list[float]:
    """Take one step on each batch; return the losses."""
    training.model.train()
    losses = []
    for arrays in batches:
        sums, _ = run_step(training, arrays)
        totals = {name: value.item() for name, value in sums.items()}
        losses.append(training.model.compute_means(totals)["loss"])
        training.totals.step += 1
    return losses


def read_curve(output: Path, name: str) -> dict[int, float]:
    """Return a number that a run logged, by step."""
    return {int(line["step"]): line[name] for line in read_metrics(output) if name in line}
