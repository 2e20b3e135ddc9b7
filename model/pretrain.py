"""Pre-trains ELECTRA on shards: python -m model.pretrain --shards DIR --output DIR --preset tiny"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from model import checkpoint
from model.command import UserMistake, assigned, main
from model.device import open_device
from model.presets import PRESETS, Preset, with_settings
from model.pretraining import loop, outputs
from model.pretraining.assembly import build
from model.pretraining.budget import parse_budget
from model.pretraining.initial_weights import Origin
from model.pretraining.mixture import open_replay
from model.pretraining.run_identity import demand_same
from model.pretraining.sequences import Shards
from model.pretraining.tracked import tracked


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m model.pretrain",
        description="Pre-trains ELECTRA on a folder of shards; continues from the last checkpoint in --output, if any. "
        "Several processes: torchrun --nproc-per-node N -m model.pretrain …",
    )
    parser.add_argument("--shards", type=Path, required=True, help="folder made by beam_jobs.shards_job")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="DIR", help="earlier shards to mix in")
    parser.add_argument("--replay_ratio", default="0.5", help="their share of the sequences (default 0.5)")
    parser.add_argument("--output", type=Path, required=True, help="checkpoints, metrics.jsonl and the model folders")
    parser.add_argument("--preset", choices=sorted(PRESETS), required=True)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="optimizer steps, instead of the preset's")
    length.add_argument("--budget", help="a time (30min) or operations (1.5e15flops) instead of steps")
    parser.add_argument("--validation", type=Path, help="shards of the dev split, measured every validate_every steps")
    parser.add_argument(
        "--start_from",
        type=Path,
        help="weights to begin with: a transformers folder or a checkpoint of "
        "google-research/electra (folder or prefix)",
    )
    parser.add_argument(
        "--start_generator_from", type=Path, help="the generator's transformers folder; with --start_from"
    )
    parser.add_argument("--device", choices=["auto", "cpu", "cuda", "xla", "xla-spmd"], default="auto")
    parser.add_argument("--threads", type=int, help="threads of the CPU; default: all cores")
    parser.add_argument("--tensorboard", action="store_true", help="also write TensorBoard files at the end")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="any field of PretrainingConfig or Architecture (model/presets.py); may be repeated",
    )
    return parser.parse_args(argv)


def configure(arguments: argparse.Namespace) -> Preset:
    settings = assigned("--set", arguments.set, "FIELD=VALUE")
    for name, value in (("steps", arguments.steps), ("threads", arguments.threads)):
        if value is not None and value < 1:
            raise UserMistake(f"--{name} {value}: must be at least 1")
    if arguments.steps is not None:
        settings["steps"] = str(arguments.steps)
    try:
        return with_settings(PRESETS[arguments.preset], settings)
    except ValueError as error:
        raise UserMistake(f"--set {str(error).removeprefix('--set ')}") from None


def origin_of(arguments: argparse.Namespace, preset: Preset) -> Origin | None:
    main, generator = arguments.start_from, arguments.start_generator_from
    if generator and not main:
        raise UserMistake(f"--start_generator_from {generator}: give the discriminator's folder too, with --start_from")
    if generator and preset.pretraining.objective != "electra":
        raise UserMistake(
            f"--start_generator_from {generator}: with objective={preset.pretraining.objective} there is no generator; "
            "leave it out"
        )
    return Origin(main, generator) if main else None


def resume(training: loop.Training) -> None:
    """From the newest checkpoint in the output folder, if there is one and it is of this run; process 0 chooses."""
    folder, device = training.writer.folder, training.device
    state = checkpoint.newest(folder) if device.is_first else None
    step = int(device.from_first(state.step if state else -1))
    if step >= 0:
        state = state or checkpoint.load(checkpoint.path_of(folder, step))
        demand_same(training.identity, state.numbers["identity"], training.folder)
        loop.restore(training, state)


def more_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was chosen besides the preset's fields."""
    replayed = [str(folder) for folder in arguments.replay or []]
    ratio = arguments.replay_ratio if replayed else "0"
    begun = str(arguments.start_from or "")
    return {"budget": arguments.budget, "replay": replayed, "replay_ratio": ratio, "start_from": begun}


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = parse(argv)
    preset = configure(arguments)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    shards = Shards.open(arguments.shards)
    replay = open_replay(shards, arguments.replay, arguments.replay_ratio) if arguments.replay else None
    dev = Shards.open(arguments.validation, "--validation", "dev") if arguments.validation else None
    outputs.check_writable(arguments.output)
    budget = parse_budget(arguments.budget) if arguments.budget else None
    origin = origin_of(arguments, preset)
    device = open_device(arguments.device, preset.pretraining.precision)
    try:
        training = build(preset, shards, device, arguments.output, budget, dev, origin, replay)
        preset = replace(preset, pretraining=training.config)
        resume(training)
        if device.is_first:
            outputs.write_config(arguments.output, preset, shards, more_settings(arguments))
        with tracked(training, preset):
            loop.train(training)
            result = outputs.finish(training, preset, shards)
        if arguments.tensorboard and device.is_first:
            outputs.write_tensorboard(arguments.output)
        return result
    finally:
        device.close()


if __name__ == "__main__":
    main(run)
