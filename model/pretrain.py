"""Pre-trains ELECTRA: python -m amazon_electra.model.pretrain --shards DIR --output DIR"""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.beam_jobs.core.files import make_writable_folder, write_json
from amazon_electra.beam_jobs.core.settings import parse_field
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import ALL_CORES, PretrainConfig, TrainingResources
from amazon_electra.model.device import open_device
from amazon_electra.model.encoders.config import CHOSEN_HERE
from amazon_electra.model.encoders.places import FORMS, is_named
from amazon_electra.model.locks import exclusive_lock
from amazon_electra.model.origin import GENERATOR, METADATA_FILE, write_origin
from amazon_electra.model.pretraining import save
from amazon_electra.model.pretraining.assembly import build_training, check_batch
from amazon_electra.model.pretraining.defaults import choose_settings
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.initial_weights import Origin
from amazon_electra.model.processes import check_processes, run_processes
from amazon_electra.model.recipes import RECIPES, Recipe, apply_settings, check_start_is_not_needed
from amazon_electra.model.results import PretrainResult


def configure_recipe(
    config: PretrainConfig, origin: Origin | None, start_from: str | None
) -> Recipe:
    """Return the recipe with what is set, else as the start weights ask; the shape is theirs."""
    settings = dict(config.settings)
    shape, defaults = dict[str, str](), dict[str, str]()
    if origin:
        shape = origin.read_settings()
        has_generator = origin.generator is not None
        defaults = choose_settings(origin.main, settings, has_generator=has_generator)
    for path, text in settings.items():
        name = path.removeprefix("pretraining.")
        if name in shape and name not in CHOSEN_HERE:
            own, its = (parse_field(Architecture, name, one) for one in (text, shape[name]))
            require(own == its, f"{start_from} has {name}={its}; leave it out", path, text)
    if config.steps is not None:
        settings["steps"] = str(config.steps)
    if not origin:
        check_start_is_not_needed(settings)
    return apply_settings(RECIPES[config.recipe], defaults | shape | settings)


def find_origin(place: str | None, output: Path) -> Origin | None:
    """Return where the start weights are; one process brings a published model into the output."""
    if not place:
        return None
    folder = Path(place)
    if is_named(place):
        folder, was_there, lock = output / "origin", output.exists(), output / "origin.lock"
        try:
            with exclusive_lock(lock):
                write_origin(place, folder, field="start_from")
        except BaseException:  # leave nothing
            if not was_there:
                lock.unlink(missing_ok=True)
                with suppress(OSError):  # of another process
                    output.rmdir()
            raise
    generator = folder / GENERATOR
    return Origin(folder, generator if (generator / METADATA_FILE).is_file() else None)


def pretrain(
    config: PretrainConfig,
    shards: Annotated[str | Path, Doc("folder that beam_jobs.shards_job wrote")],
    output: Annotated[
        str | Path, Doc("folder for checkpoints, metrics.jsonl and the model folders")
    ],
    *,
    start_from: Annotated[
        str | Path | None,
        Doc(
            "weights to start from, which decide the shape: a folder that model.origin wrote, or a "
            f"published encoder ({FORMS})"
        ),
    ] = None,
    validation: Annotated[
        str | Path | None,
        Doc("shards of the dev split; losses are measured on them every validate_every steps"),
    ] = None,
    resources: TrainingResources = ALL_CORES,
) -> PretrainResult:
    """Pre-train an encoder on shards; continue to the bit from the last checkpoint in `output`.

        pretrain(PretrainConfig(recipe="sample", steps=600), "shards", "encoder")

    `processes` start on one machine; torchrun starts the same command on several.
    """
    output, place = Path(output), str(start_from) if start_from else None
    processes = resources.processes or 1
    # this process starts the others, and is none of them
    if processes > 1 and "RANK" not in os.environ:
        check_processes(resources.device, processes)
        batch = RECIPES[config.recipe].pretraining.batch
        check_batch(int(config.settings.get("batch", batch)), processes)
        run = partial(
            pretrain,
            config,
            shards,
            output,
            start_from=place,
            validation=validation,
            resources=resources,
        )
        return PretrainResult(**run_processes(run, processes))
    found = Shards.open(Path(shards))
    origin = find_origin(place, output)
    recipe = configure_recipe(config, origin, place)
    if resources.threads or processes > 1:
        torch.set_num_threads(resources.threads or max(1, (os.cpu_count() or 1) // processes))
    dev = Shards.open(Path(validation), "validation", "dev") if validation else None
    device = open_device(resources.device, recipe.pretraining.precision)
    try:
        training = build_training(recipe, found, device, output, dev, origin)
        make_writable_folder("output", output)  # not before its start could be read
        if state := training.checkpoints.find(device):
            training.restore_state(state)
        if device.is_rank0:
            read = {"shards": str(found.folder), "shards_fingerprint": found.fingerprint}
            begun = {"start_from": place or "", "start": training.start}
            write_json(output / "config.json", recipe.describe() | read | begun)
        training.train()
        return PretrainResult.of(save.write_outputs(training, recipe, found, origin))
    finally:
        device.close()


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(pretrain)
