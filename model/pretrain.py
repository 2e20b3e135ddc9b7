"""Pre-trains ELECTRA: python -m amazon_electra.model.pretrain --shards DIR --output DIR"""

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
from typing_extensions import Doc

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.files import make_writable_folder
from amazon_electra.beam_jobs.core.locks import exclusive_lock
from amazon_electra.beam_jobs.core.settings import parse_field
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.config import ALL_CORES, PretrainConfig, TrainingResources
from amazon_electra.model.device import open_device
from amazon_electra.model.encoders.config import CHOSEN_HERE
from amazon_electra.model.encoders.places import FORMS, is_named
from amazon_electra.model.origin import GENERATOR, METADATA_FILE, write_origin
from amazon_electra.model.pretraining import checkpoint, loop, save
from amazon_electra.model.pretraining.assembly import build_training, check_batch, parse_budget
from amazon_electra.model.pretraining.defaults import choose_settings, describe_settings
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.initial_weights import Origin
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.processes import check_processes, run_processes
from amazon_electra.model.recipes import RECIPES, Recipe, apply_settings, check_start_is_not_needed
from amazon_electra.model.results import PretrainResult


def configure_recipe(
    config: PretrainConfig, origin: Origin | None, start_from: str | None, has_own_generator: bool
) -> tuple[Recipe, dict[str, str]]:
    """Return the recipe with what is set, and those settings that the start weights asked for; the
    shape is theirs too.
    """
    require(config.steps is None or config.budget is None, "give one of steps and budget")
    settings = dict(config.settings)
    shape, defaults = dict[str, str](), dict[str, str]()
    if origin:
        shape = origin.read_settings()
        has_generator = origin.generator is not None
        defaults = choose_settings(origin.main, settings, has_generator=has_generator)
    for path, text in settings.items():
        name = path.removeprefix("pretraining.")
        if name not in shape or name in CHOSEN_HERE:
            continue
        if parse_field(Architecture, name, text) != parse_field(Architecture, name, shape[name]):
            raise UserError(f"{start_from} has {name}={shape[name]}; leave it out", path, text)
    if config.steps is not None:
        settings["steps"] = str(config.steps)
    if not origin:
        check_start_is_not_needed(settings)
    recipe = apply_settings(RECIPES[config.recipe], defaults | shape | settings)
    objective = recipe.pretraining.objective
    is_used = not has_own_generator or find_objective(objective).has_generator
    require(is_used, f"objective={objective} has none; leave it out", "start_generator_from")
    return recipe, defaults


def find_origin(place: str | None, generator: Path | None, output: Path) -> Origin | None:
    """Return where the start weights are; a published model is brought into the output first, by
    one of several processes. UserError for a generator without a discriminator.
    """
    if not place:
        require(not generator, "give start_from too", "start_generator_from", generator)
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
    beside = folder / GENERATOR
    return Origin(folder, generator or (beside if (beside / METADATA_FILE).is_file() else None))


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
    start_generator_from: Annotated[
        str | Path | None,
        Doc("transformers folder of the generator, if there is none beside start_from"),
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
    generator = Path(start_generator_from) if start_generator_from else None
    processes = resources.processes or 1
    # this process starts the others, and is none of them
    if processes > 1 and "RANK" not in os.environ:
        check_processes(resources.device, processes)
        batch = RECIPES[config.recipe].pretraining.batch
        check_batch(int(config.settings.get("batch", batch)), processes)
        asked = config, shards, output, place, generator, validation, resources
        return PretrainResult.of(run_processes(_pretrain_as_rank, asked, processes))
    found = Shards.open(Path(shards))
    origin = find_origin(place, generator, output)
    recipe, defaults = configure_recipe(config, origin, place, bool(generator))
    if resources.threads or processes > 1:
        torch.set_num_threads(resources.threads or max(1, (os.cpu_count() or 1) // processes))
    dev = Shards.open(Path(validation), "validation", "dev") if validation else None
    budget = parse_budget(config.budget) if config.budget else None
    device = open_device(resources.device, recipe.pretraining.precision)
    try:
        training = build_training(recipe, found, device, output, budget, dev, origin)
        make_writable_folder("output", output)  # not before its start could be read
        recipe = replace(recipe, pretraining=training.config)
        checkpoints, identity = training.writer.folder, training.identity
        if state := checkpoint.find_state(checkpoints, device, identity, output):
            loop.restore_state(training, state)
        if device.is_rank0:
            others = {
                "budget": config.budget,
                "start_from": place or "",
                "start": training.start,  # what is known of the start weights
            }
            save.write_config(output, recipe, found, others)
            if origin and (line := describe_settings(origin.main, defaults)):
                print(line, file=sys.stderr)
        loop.train(training)
        return PretrainResult.of(save.write_outputs(training, recipe, found, origin))
    finally:
        device.close()


def _pretrain_as_rank(asked: tuple[Any, ...]) -> dict[str, Any]:
    config, shards, output, place, generator, validation, resources = asked
    return pretrain(
        config,
        shards,
        output,
        start_from=place,
        start_generator_from=generator,
        validation=validation,
        resources=resources,
    ).content


if __name__ == "__main__":
    from amazon_electra.beam_jobs.core.command_line import run_as_command

    run_as_command(pretrain)
