"""Puts a run together: model, data, device, budget."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from model.command import UserMistake
from model.device import Device
from model.presets import Preset, PretrainingConfig
from model.pretraining import flops, loop
from model.pretraining.batches import Batches, SpecialTokens
from model.pretraining.budget import Budget, steps_for
from model.pretraining.electra import Electra
from model.pretraining.encoder import initialize
from model.pretraining.initial_weights import Origin, describe, start_from
from model.pretraining.masking import Replacement
from model.pretraining.mixture import Mixture, Replay
from model.pretraining.mlm import MaskedLanguageModel
from model.pretraining.run_identity import identify
from model.pretraining.sequences import Shards, Stream
from model.pretraining.validation import Model, Validation

BERT_MASK, BERT_RANDOM = 0.8, 0.1  # Devlin et al. 2019


def build(
    preset: Preset,
    shards: Shards,
    device: Device,
    output: Path,
    budget: Budget | None = None,
    dev: Shards | None = None,
    origin: Origin | None = None,
    replay: Replay | None = None,
) -> loop.Training:
    """A run at its first step."""
    per_sequence = flops_per_sequence(preset, shards)
    if budget and budget.flops:
        steps = steps_for(budget.flops, per_sequence * preset.pretraining.batch)
        preset = replace(preset, pretraining=replace(preset.pretraining, steps=steps))
    _check(preset, shards, device)
    config = preset.pretraining
    shape, size, length = preset.architecture, shards.vocabulary_size, shards.max_length
    model = build_model(preset, size, device.dtype)
    initialize(model, config.seed, config.initial_deviation)
    if origin:
        initial = start_from(model, shape, origin, shards.vocabulary)
        if device.is_first:
            print(describe(origin, initial), file=sys.stderr)
    model.noise.pooled = device.kind == "cpu"
    device.move(model)
    identity = identify(preset, shards) | {"budget_seconds": budget.seconds if budget else None}
    batches = build_batches(config, shards, device.rank, device.ranks)
    if replay:
        batches = replace(batches, stream=Mixture.of(shards, replay, config.seed))
        identity |= replay.identity
    training = loop.Training(
        config=config,
        model=model,
        device=device,
        batches=batches,
        folder=output,
        identity=identity | {"origin": origin.fingerprint() if origin else None},
        flops_per_sequence=per_sequence,
        products_per_sequence=length * flops.matrix_flops(shape, size, length, config.objective),
        budget_seconds=budget.seconds if budget else None,
    )
    if dev:
        training.validation = build_validation(config, shards, dev)
    return training


def build_model(preset: Preset, vocabulary_size: int, dtype: torch.dtype) -> Model:
    kind = Electra if preset.pretraining.objective == "electra" else MaskedLanguageModel
    return kind(vocabulary_size, preset.architecture, preset.pretraining, dtype)


def build_batches(config: PretrainingConfig, shards: Shards, rank: int = 0, ranks: int = 1) -> Batches:
    special = special_tokens(shards.vocabulary)
    fractions = (config.mask_token_fraction, 0.0) if config.objective == "electra" else (BERT_MASK, BERT_RANDOM)
    return Batches(
        stream=Stream(shards, config.seed),
        size=config.batch,
        special=special,
        fraction=config.masked_fraction,
        replacement=Replacement(special.mask, *fractions, shards.vocabulary_size),
        seed=config.seed,
        rank=rank,
        ranks=ranks,
        pairs=config.objective == "mlm+nsp",
    )


def build_validation(config: PretrainingConfig, shards: Shards, dev: Shards) -> Validation:
    if dev.vocabulary_fingerprint != shards.vocabulary_fingerprint:
        raise UserMistake(f"--validation {dev.folder}: made with another vocabulary than {shards.folder}")
    if dev.max_length != shards.max_length:
        raise UserMistake(f"--validation {dev.folder}: length {dev.max_length}, the shards have {shards.max_length}")
    size = min(config.batch, config.device_batch or config.batch, dev.sequences)
    wanted = min(config.validate_sequences, dev.sequences)
    batches = build_batches(replace(config, batch=size, seed=0), dev)
    return Validation(batches, max(1, wanted // size), seed=0)


def flops_per_sequence(preset: Preset, shards: Shards) -> float:
    objective = preset.pretraining.objective
    return flops.train_flops(preset.architecture, shards.vocabulary_size, shards.max_length, 1, objective)


def special_tokens(vocabulary: Path) -> SpecialTokens:
    places = {token: i for i, token in enumerate((vocabulary / "vocab.txt").read_text(encoding="utf-8").split("\n"))}
    missing = [token for token in ("[CLS]", "[SEP]", "[MASK]") if token not in places]
    if missing:
        raise UserMistake(f"{vocabulary / 'vocab.txt'} has no {', '.join(missing)}")
    return SpecialTokens(places["[CLS]"], places["[SEP]"], places["[MASK]"])


def _check(preset: Preset, shards: Shards, device: Device) -> None:
    config = preset.pretraining
    if shards.max_length > preset.architecture.max_positions:
        raise UserMistake(f"--set max_positions: shards of length {shards.max_length} need at least as many")
    if config.batch % device.ranks:
        raise UserMistake(f"--set batch={config.batch}: must be a multiple of the {device.ranks} processes")
    if config.masked_fraction * config.batch * shards.max_length < 1:
        raise UserMistake(
            f"--set masked_fraction={config.masked_fraction}: masks no token of {config.batch} sequences of length "
            f"{shards.max_length}"
        )
    share = config.batch // device.ranks
    if config.device_batch and share % config.device_batch:
        raise UserMistake(
            f"--set device_batch={config.device_batch}: must divide {share}, one process's share of a batch"
        )
