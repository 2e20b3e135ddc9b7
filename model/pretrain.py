"""Pre-trains ELECTRA: python -m amazon_electra.model.pretrain --shards DIR --output DIR"""

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from amazon_electra.beam_jobs.core.command import main
from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.core.files import make_writable_folder
from amazon_electra.beam_jobs.core.locks import exclusive_lock
from amazon_electra.beam_jobs.core.settings import build_settings, parse_field, read_options
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.device import open_device
from amazon_electra.model.encoders.config import CHOSEN_HERE
from amazon_electra.model.encoders.origin import GENERATOR, METADATA_FILE, write_origin
from amazon_electra.model.encoders.places import is_named
from amazon_electra.model.options import (
    ALL_CORES,
    PretrainConfig,
    PretrainOptions,
    TrainingResources,
)
from amazon_electra.model.pretraining import checkpoint, loop, save
from amazon_electra.model.pretraining.assembly import build_training, check_batch, parse_budget
from amazon_electra.model.pretraining.defaults import choose_settings, describe_settings
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.network.initial_weights import Origin
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.processes import check_processes, run_processes
from amazon_electra.model.recipes import RECIPES, Recipe, apply_settings, check_start_is_not_needed
from amazon_electra.model.results import PretrainResult

DESCRIPTION = """Pre-train an encoder on a folder of shards; continue from the last checkpoint in
--output, if there is one. --processes N starts several processes on one machine; use torchrun for
several machines."""


def configure_recipe(
    arguments: PretrainOptions, origin: Origin | None
) -> tuple[Recipe, dict[str, str]]:
    """Return the recipe with what is set, and the settings that the start weights asked for."""
    if arguments.steps is not None and arguments.budget is not None:
        raise UserError("give one of `steps` and `budget`")
    settings = dict(arguments.settings)
    shape = origin.read_settings() if origin else {}
    defaults = (
        choose_settings(origin.main, settings, has_generator=bool(origin.generator))
        if origin
        else {}
    )
    for path, text in settings.items():
        name = path.removeprefix("pretraining.")
        if name not in shape or name in CHOSEN_HERE:
            continue
        if parse_field(Architecture, name, text) != parse_field(Architecture, name, shape[name]):
            raise UserError(
                f"{arguments.start_from} has {name}={shape[name]}; leave it out", path, text
            )
    if arguments.steps is not None:
        settings["steps"] = str(arguments.steps)
    if not origin:
        check_start_is_not_needed(settings)
    recipe = apply_settings(RECIPES[arguments.recipe], defaults | shape | settings)
    has_generator = find_objective(recipe.pretraining.objective).has_generator
    if arguments.start_generator_from and not has_generator:
        raise UserError(
            f"with objective={recipe.pretraining.objective} there is no generator; leave it out",
            "start_generator_from",
            arguments.start_generator_from,
        )
    return recipe, defaults


def find_origin(arguments: PretrainOptions) -> Origin | None:
    """Return where the start weights are; a published model is brought into the output first."""
    place, generator = arguments.start_from, arguments.start_generator_from
    if generator and not place:
        raise UserError(
            "give the discriminator's folder too, with `start_from`",
            "start_generator_from",
            generator,
        )
    if not place:
        return None
    folder = Path(place)
    if is_named(place):
        folder = arguments.output / "origin"
        bring_origin(place, folder)
    beside = folder / GENERATOR
    return Origin(folder, generator or (beside if (beside / METADATA_FILE).is_file() else None))


def bring_origin(place: str, folder: Path) -> None:
    """Bring a published encoder into a folder, by one of several processes, or leave nothing."""
    lock, was_there = folder.with_name("origin.lock"), folder.parent.exists()
    try:
        with exclusive_lock(lock):
            write_origin(place, folder, field="start_from")
    except BaseException:
        if not was_there:
            lock.unlink(missing_ok=True)
            with suppress(OSError):  # of another process
                folder.parent.rmdir()
        raise


def resume_training(training: loop.Training) -> None:
    """Continue from the newest checkpoint in the output folder, if any."""
    folder, device = training.writer.folder, training.device
    if state := checkpoint.find_state(folder, device, training.identity, training.folder):
        loop.restore_state(training, state)


def pretrain(
    config: PretrainConfig,
    shards: str | Path,
    output: str | Path,
    *,
    start_from: str | Path | None = None,
    start_generator_from: str | Path | None = None,
    validation: str | Path | None = None,
    resources: TrainingResources = ALL_CORES,
) -> PretrainResult:
    """Pre-train on shards; write checkpoints, metrics.jsonl and the encoder's folder into `output`.
    `start_from` is a published encoder or an earlier training, `validation` shards of dev reviews.
    The same call continues an interrupted training, to the bit.
    """
    paths = {
        "shards": Path(shards),
        "output": Path(output),
        "start_from": str(start_from) if start_from else None,
        "start_generator_from": start_generator_from,
        "validation": validation,
    }
    options = build_settings(PretrainOptions, dict(config) | dict(resources) | paths)
    return PretrainResult.of(train(options))


def run(argv: list[str] | None = None) -> dict[str, Any]:
    """Pre-train as a command line asks for."""
    return train(
        read_options(PretrainOptions, argv, "python -m amazon_electra.model.pretrain", DESCRIPTION)
    )


def train(arguments: PretrainOptions) -> dict[str, Any]:
    """Pre-train, in several processes of this machine where they are asked for."""
    processes = arguments.processes or 1
    # this process starts the others, and is none of them
    if processes > 1 and "RANK" not in os.environ:
        check_processes(arguments.device, processes)
        batch = RECIPES[arguments.recipe].pretraining.batch
        check_batch(int(arguments.settings.get("batch", batch)), processes)
        return run_processes(train, arguments, processes)
    shards = Shards.open(arguments.shards)
    origin = find_origin(arguments)
    recipe, defaults = configure_recipe(arguments, origin)
    if arguments.threads or processes > 1:
        torch.set_num_threads(arguments.threads or max(1, (os.cpu_count() or 1) // processes))
    dev = Shards.open(arguments.validation, "validation", "dev") if arguments.validation else None
    budget = parse_budget(arguments.budget) if arguments.budget else None
    device = open_device(arguments.device, recipe.pretraining.precision)
    try:
        training = build_training(
            recipe,
            shards,
            device,
            arguments.output,
            budget,
            dev,
            origin,
        )
        make_writable_folder("output", arguments.output)  # not before its start could be read
        recipe = replace(recipe, pretraining=training.config)
        resume_training(training)
        if device.is_rank0:
            others = {
                "budget": arguments.budget,
                "start_from": str(arguments.start_from or ""),
                "start": training.start,  # what is known of the start weights
            }
            save.write_config(arguments.output, recipe, shards, others)
            if origin and (line := describe_settings(origin.main, defaults)):
                print(line, file=sys.stderr)
        with save.mirror_to_mlflow(training, recipe):
            loop.train(training)
            result = save.write_outputs(training, recipe, shards, origin)
        return result
    finally:
        device.close()


if __name__ == "__main__":
    main(run, PretrainOptions)
