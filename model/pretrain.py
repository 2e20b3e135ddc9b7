"""Pre-trains ELECTRA: python -m model.pretrain --shards DIR --output DIR --preset tiny"""

import sys
from dataclasses import replace
from typing import Any

import torch

from beam_jobs.job.command import main
from beam_jobs.job.errors import UserError
from beam_jobs.job.files import make_writable_folder
from beam_jobs.job.settings import parse_assignments, read_options
from model.config import PretrainingConfig
from model.device import open_device
from model.options import PretrainOptions
from model.presets import PRESETS, Preset, apply_settings, check_settings_are_read
from model.pretraining import checkpoint, loop, outputs
from model.pretraining.assembly import build_training
from model.pretraining.budget import describe_small_budget, parse_budget
from model.pretraining.input.mixture import open_replay
from model.pretraining.input.sequences import Shards
from model.pretraining.mlflow_log import mirror_to_mlflow
from model.pretraining.network.initial_weights import Origin
from model.pretraining.run_identity import check_same_run

DESCRIPTION = """Pre-trains ELECTRA on a folder of shards; continues from the last checkpoint in
--output, if any. Several processes: torchrun --nproc-per-node N -m model.pretrain …"""


def configure_preset(arguments: PretrainOptions) -> Preset:
    if arguments.steps is not None and arguments.budget is not None:
        raise UserError("--steps and --budget: give one of them")
    settings = parse_assignments("--set", arguments.settings, "FIELD=VALUE")
    if arguments.steps is not None:
        settings["steps"] = str(arguments.steps)
    try:
        preset = apply_settings(PRESETS[arguments.preset], settings)
        dev_shards = "given" if arguments.validation else "none"
        check_settings_are_read(preset, settings, dev_shards)
    except UserError as mistake:
        raise UserError(f"--set {mistake}") from None
    return preset


def read_origin(arguments: PretrainOptions, preset: Preset) -> Origin | None:
    main, generator = arguments.start_from, arguments.start_generator_from
    if generator and not main:
        raise UserError(
            f"--start-generator-from {generator}: give the discriminator's folder too, "
            "with --start-from"
        )
    if generator and preset.pretraining.objective != "electra":
        raise UserError(
            f"--start-generator-from {generator}: with objective={preset.pretraining.objective} "
            "there is no generator; leave it out"
        )
    return Origin(main, generator) if main else None


def resume_training(training: loop.Training) -> None:
    """Continue from the newest checkpoint in the output folder, if any; rank 0 chooses it.

    Raise UserError if it belongs to another run.
    """
    folder, device = training.writer.folder, training.device
    state = checkpoint.load_newest_state(folder) if device.is_rank0 else None
    step = int(device.broadcast_from_rank0(state.step if state else -1))
    if step >= 0:
        state = state or checkpoint.load_state(checkpoint.build_path(folder, step))
        check_same_run(training.identity, state.numbers["identity"], training.folder)
        loop.restore_state(training, state)


def list_other_settings(arguments: PretrainOptions) -> dict[str, Any]:
    """Return the options that are no fields of the preset, for config.json."""
    replay = [str(folder) for folder in arguments.replay]
    return {
        "budget": arguments.budget,
        "replay": replay,
        "replay_ratio": arguments.replay_ratio if replay else "0",
        "long_shards": str(arguments.long_shards or ""),
        "start_from": str(arguments.start_from or ""),
    }


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = read_options(PretrainOptions, argv, "python -m model.pretrain", DESCRIPTION)
    preset = configure_preset(arguments)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    shards = Shards.open(arguments.shards)
    replay = (
        open_replay(shards, arguments.replay, arguments.replay_ratio) if arguments.replay else None
    )
    longer = Shards.open(arguments.long_shards, "--long-shards") if arguments.long_shards else None
    if longer is None and preset.pretraining.long_share != PretrainingConfig.long_share:
        raise UserError("--set long_share: has no effect without --long-shards")
    dev = Shards.open(arguments.validation, "--validation", "dev") if arguments.validation else None
    make_writable_folder("--output", arguments.output)
    budget = parse_budget(arguments.budget) if arguments.budget else None
    origin = read_origin(arguments, preset)
    device = open_device(arguments.device, preset.pretraining.precision)
    try:
        training = build_training(
            preset, shards, device, arguments.output, budget, dev, origin, replay, longer
        )
        preset = replace(preset, pretraining=training.config)
        resume_training(training)
        warning = describe_small_budget(preset, shards.max_length)
        if warning and device.is_rank0 and not origin and training.budget_seconds is None:
            print(warning, file=sys.stderr)
        if device.is_rank0:
            outputs.write_config(arguments.output, preset, shards, list_other_settings(arguments))
        with mirror_to_mlflow(training, preset):
            loop.train(training)
            result = outputs.write_outputs(training, preset, shards)
        if arguments.tensorboard and device.is_rank0:
            outputs.write_tensorboard(arguments.output)
        return result
    finally:
        device.close()


if __name__ == "__main__":
    main(run)
