"""Pre-trains ELECTRA on shards: python -m model.pretrain --shards DIR --output DIR --preset tiny"""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from model import checkpoint, export
from model.command import UserMistake, main
from model.device import Device, open_device
from model.metrics_log import read_metrics
from model.presets import PRESETS, Preset, with_settings
from model.pretraining import flops, loop, model_card
from model.pretraining.batches import Batches, SpecialTokens
from model.pretraining.electra import Electra
from model.pretraining.encoder import initialize
from model.pretraining.masking import Replacement
from model.pretraining.run_identity import demand_same, identify
from model.pretraining.sequences import Shards, Stream


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m model.pretrain",
        description="Pre-trains ELECTRA on a folder of shards; continues from the last checkpoint in --output, if any.",
    )
    parser.add_argument("--shards", type=Path, required=True, help="folder made by beam_jobs.shards_job")
    parser.add_argument("--output", type=Path, required=True, help="checkpoints, metrics.jsonl and the model folders")
    parser.add_argument("--preset", choices=sorted(PRESETS), required=True)
    parser.add_argument("--steps", type=int, help="optimizer steps, instead of the preset's")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda", "xla"], default="auto")
    parser.add_argument("--threads", type=int, help="threads of the CPU; default: all cores")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="any field of PretrainingConfig or Architecture (model/presets.py); may be repeated",
    )
    return parser.parse_args(argv)


def configure(arguments: argparse.Namespace) -> Preset:
    settings = {}
    for setting in arguments.set:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UserMistake(f"--set {setting}: write FIELD=VALUE")
        settings[name] = value
    if arguments.steps is not None:
        settings["steps"] = str(arguments.steps)
    try:
        return with_settings(PRESETS[arguments.preset], settings)
    except ValueError as error:
        raise UserMistake(str(error)) from None


def build(preset: Preset, shards: Shards, device: Device, output: Path) -> loop.Training:
    config = preset.pretraining
    if shards.max_length > preset.architecture.max_positions:
        raise UserMistake(f"--set max_positions: shards of length {shards.max_length} need at least as many")
    if config.batch % device.ranks:
        raise UserMistake(f"--set batch={config.batch}: must be a multiple of the {device.ranks} processes")
    model = Electra(shards.vocabulary_size, preset.architecture, config, device.dtype)
    initialize(model, config.seed)
    device.move(model)
    special = special_tokens(shards.vocabulary)
    return loop.Training(
        config=config,
        model=model,
        device=device,
        batches=Batches(
            stream=Stream(shards, config.seed),
            size=config.batch,
            special=special,
            fraction=config.masked_fraction,
            replacement=Replacement(special.mask, config.mask_token_fraction, 0.0, shards.vocabulary_size),
            seed=config.seed,
            rank=device.rank,
            ranks=device.ranks,
        ),
        folder=output,
        identity=identify(preset, shards),
        flops_per_sequence=flops.train_flops(
            preset.architecture, shards.vocabulary_size, shards.max_length, 1, config.objective
        ),
    )


def special_tokens(vocabulary: Path) -> SpecialTokens:
    places = {token: i for i, token in enumerate((vocabulary / "vocab.txt").read_text(encoding="utf-8").split("\n"))}
    missing = [token for token in ("[CLS]", "[SEP]", "[MASK]") if token not in places]
    if missing:
        raise UserMistake(f"{vocabulary / 'vocab.txt'} has no {', '.join(missing)}")
    return SpecialTokens(places["[CLS]"], places["[SEP]"], places["[MASK]"])


def resume(training: loop.Training) -> None:
    """From the newest checkpoint in the output folder, if there is one and it is of this run."""
    kept = checkpoint.found(training.checkpoints)
    if not kept:
        return
    state = checkpoint.load(kept[-1])
    demand_same(training.identity, state.numbers["identity"], training.folder)
    loop.restore(training, state)


def write_models(training: loop.Training, preset: Preset, shards: Shards, result: dict[str, Any]) -> dict[str, str]:
    """The discriminator's and the generator's folder."""
    weights = dict(training.model.named_parameters())
    shapes: dict[export.Role, Any] = {
        "discriminator": preset.architecture,
        "generator": preset.architecture.generator(),
    }
    written: dict[str, str] = {}
    for role, shape in shapes.items():
        mapping = export.names(role, shape.layers, shape.embedding != shape.hidden)
        config = export.transformers_config(role, shape, shards.vocabulary_size, preset.pretraining.dropout)
        card = model_card.write(role, preset, shards, result, read_metrics(training.folder))
        tensors = export.to_transformers(weights, mapping)
        folder = export.write_model(training.folder / role, config, tensors, shards.vocabulary, card)
        written[role] = str(folder)
    return written


def run(argv: list[str] | None = None) -> dict[str, Any]:
    arguments = parse(argv)
    preset = configure(arguments)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    shards = Shards.open(arguments.shards)
    device = open_device(arguments.device, preset.pretraining.precision)
    try:
        training = build(preset, shards, device, arguments.output)
        resume(training)
        write_config(arguments.output, preset, shards)
        loop.train(training)
        return finish(training, preset, shards)
    finally:
        device.close()


def write_config(output: Path, preset: Preset, shards: Shards) -> None:
    """The resolved configuration, beside what it produces."""
    output.mkdir(parents=True, exist_ok=True)
    resolved = asdict(preset) | {"shards": str(shards.folder), "shards_fingerprint": shards.fingerprint}
    (output / "config.json").write_text(json.dumps(resolved, indent=2) + "\n")


def finish(training: loop.Training, preset: Preset, shards: Shards) -> dict[str, Any]:
    result = summarize(training)
    if training.device.is_first:
        result |= write_models(training, preset, shards, result)
        temporary = training.folder / "result.json.tmp"
        temporary.write_text(json.dumps(result, indent=2) + "\n")
        os.replace(temporary, training.folder / "result.json")
    return result


def summarize(training: loop.Training) -> dict[str, Any]:
    totals = training.totals
    logged = [line for line in read_metrics(training.folder) if "loss" in line]
    losses = ("generator_loss", "discriminator_loss")
    last: dict[str, float] = {name: logged[-1][name] for name in losses if logged and name in logged[-1]}
    return {
        "steps": totals.step,
        "sequences": totals.sequences,
        "tokens": totals.tokens,
        "flops": totals.flops,
        **last,
        "seconds": round(totals.seconds, 3),
        "cpu_seconds": round(totals.cpu_seconds, 3),
        "tokens_per_second": round(totals.tokens / max(totals.seconds, 1e-9)),
        "parameters": sum(p.numel() for p in training.model.parameters()),
        "device": training.device.kind,
    }


if __name__ == "__main__":
    main(run)
