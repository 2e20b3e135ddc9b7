"""Builds a run from its recipe, shards, device and budget."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from amazon_electra.beam_jobs.core.errors import UserError, require
from amazon_electra.beam_jobs.core.nesting import find_json
from amazon_electra.beam_jobs.core.special_tokens import find_specials
from amazon_electra.beam_jobs.core.terminal import print
from amazon_electra.model.config import PretrainingConfig
from amazon_electra.model.device import Device
from amazon_electra.model.encoders.config import TRAINED_LENGTH
from amazon_electra.model.encoders.known import describe_start
from amazon_electra.model.encoders.vocabulary import find_special
from amazon_electra.model.pretraining import VERSION, loop
from amazon_electra.model.pretraining.input.batches import (
    Batches,
    SpecialTokens,
    number_documents,
    sum_squared_lengths,
)
from amazon_electra.model.pretraining.input.masking import Replacement, count_slots
from amazon_electra.model.pretraining.input.sequences import Shards, Stream
from amazon_electra.model.pretraining.loop import LoadedTrunk
from amazon_electra.model.pretraining.network.encoder import initialize_weights
from amazon_electra.model.pretraining.network.initial_weights import Origin, load_weights
from amazon_electra.model.pretraining.network.masked_prediction import PretrainingModel
from amazon_electra.model.pretraining.objectives import MatrixFlops, find_objective
from amazon_electra.model.pretraining.validation import VALIDATED_SHARE, VALIDATIONS, Validation
from amazon_electra.model.recipes import Recipe

FREE_SETTINGS = {
    *("log_every", "validate_every", "checkpoint_every", "keep_checkpoints"),
    *("device_batch", "validate_sequences", "compile"),
}
"""These change what is written or how the work is cut up, not what is learned."""


def build_training(
    recipe: Recipe,
    shards: Shards,
    device: Device,
    output: Path,
    dev: Shards | None = None,
    origin: Origin | None = None,
) -> loop.Training:
    """Return a run at its first step; UserError if settings, shards and device do not fit."""
    _check_recipe(recipe, shards, device)
    config, shape, adaptation = recipe.pretraining, recipe.architecture, recipe.adaptation
    model, initial = load_model(recipe, shards, device.dtype, origin)
    if origin and device.is_rank0:
        new = dict.fromkeys(name if "[" in name else name.split(".")[0] for name in initial)
        drawn = f"; newly initialized: {', '.join(new)}" if new else ""
        print(f"starting from {origin.main}{drawn}", file=sys.stderr)
    model.to(device.torch)
    trained_length = shards.max_length
    if origin:  # a folder that does not say how many positions were trained trained all
        others = find_json(origin.main / "config.json").get(TRAINED_LENGTH)
        trained_length = max(trained_length, others or shape.max_positions)
    share = adaptation.origin_average if origin else 0.0
    return loop.Training(
        config=config,
        model=model,
        device=device,
        batches=build_batches(config, shards, device.rank, device.world_size),
        folder=output,
        identity=identify_run(recipe, shards, origin),
        matrix_flops=MatrixFlops.derive(shape, shards.vocabulary_size, config.objective),
        trained_length=trained_length,
        validation=build_validation(config, shards, dev) if dev else None,
        adaptation=adaptation,
        start=describe_start(origin.main) if origin else {},
        loaded=LoadedTrunk(model, share) if share else None,
    )


def identify_run(recipe: Recipe, shards: Shards, origin: Origin | None) -> dict[str, Any]:
    """Return what must be the same for a checkpoint to be continued."""
    settings = recipe.architecture.model_dump() | recipe.pretraining.model_dump()
    return {
        "version": VERSION,
        "vocabulary": shards.vocabulary_fingerprint,
        "shards": shards.fingerprint,
        **{name: value for name, value in settings.items() if name not in FREE_SETTINGS},
        "origin": origin.compute_fingerprint() if origin else None,
        **(recipe.adaptation.model_dump() if origin else {}),
    }


def load_model(
    recipe: Recipe, shards: Shards, dtype: torch.dtype, origin: Origin | None
) -> tuple[PretrainingModel, list[str]]:
    """Return the model with its start weights, and the names of those that are new."""
    config, objective = recipe.pretraining, find_objective(recipe.pretraining.objective)
    if origin and not origin.is_ours:
        module, new = origin.load_module(config, dtype, shards)
        bias = getattr(module.network.get_output_embeddings(), "bias", None)
        if new and bias is not None:
            set_output_bias(bias, shards)
        return module, new
    model = objective.load_network()(shards.vocabulary_size, recipe.architecture, config, dtype)
    initialize_weights(model, config.seed, config.initializer_range)
    if origin is None:
        return model, []
    initial = load_weights(model, recipe.architecture, origin, shards.vocabulary)
    head = "generator_head" if objective.has_generator else f"{model.trunk_name}_head"
    if f"{head}.bias" in initial:
        set_output_bias(getattr(model, head).bias, shards)
    return model, initial


def set_output_bias(bias: nn.Parameter, shards: Shards) -> None:
    """Set the bias [vocabulary] to the logarithm of each entry's share of the first sequences."""
    # Adam would take thousands of steps to learn how frequent words are, and shake the loaded trunk
    rows = shards.sample_rows()
    real = rows.input_ids[np.arange(rows.input_ids.shape[1]) < rows.lengths[:, None]]
    counts = np.bincount(real, minlength=len(bias)) + 1.0
    with torch.no_grad():
        bias.copy_(torch.from_numpy(np.log(counts / counts.sum())))


def build_batches(
    config: PretrainingConfig, shards: Shards, rank: int = 0, world_size: int = 1
) -> Batches:
    cls, sep = find_specials(Tokenizer.from_file(str(shards.vocabulary / "tokenizer.json")))
    mask = find_special(shards.vocabulary, "mask")
    if mask is None:
        raise UserError(f"{shards.vocabulary}: its tokenizer has no mask token")
    objective = find_objective(config.objective)
    fractions = objective.choose_replacement(config.mask_token_fraction)
    return Batches(
        stream=Stream(shards, config.seed),
        size=config.batch,
        special=SpecialTokens(cls, sep, mask),
        fraction=config.mask_probability,
        replacement=Replacement(mask, *fractions, shards.vocabulary_size),
        seed=config.seed,
        rank=rank,
        world_size=world_size,
        pairs=objective.has_pairs,
        segment_probability=config.segment_probability,
    )


def build_validation(config: PretrainingConfig, shards: Shards, dev: Shards) -> Validation:
    """Return the validation on the first dev sequences; on fewer in a short run, to be cheap."""
    for name in ("vocabulary_fingerprint", "max_length"):
        own, other = getattr(shards, name), getattr(dev, name)
        require(own == other, f"{name} is {other}, of `shards` {own}", "validation", dev.folder)
    size = min(config.batch, config.device_batch or config.batch, dev.sequences)
    sequences = min(config.validate_sequences, dev.sequences)
    if not config.validate_every:
        affordable = VALIDATED_SHARE * config.steps * config.batch / VALIDATIONS
        sequences = min(sequences, round(affordable))
    batches = build_batches(config.replace(batch=size, seed=0), dev)
    return Validation(batches, max(1, sequences // size))


def estimate_sequence_flops(recipe: Recipe, shards: Shards, has_document_attention: bool) -> float:
    """Return the matrix products of training on one sequence, by the first sequences there."""
    config = recipe.pretraining
    pairs: float = shards.max_length**2
    if has_document_attention:
        rows = shards.sample_rows()
        pairs = sum_squared_lengths(number_documents(rows)) / len(rows.lengths)
    slots = count_slots(shards.max_length, config.mask_probability)
    products = MatrixFlops.derive(recipe.architecture, shards.vocabulary_size, config.objective)
    return products.count(shards.max_length, pairs, slots)


def check_batch(batch: int, processes: int) -> None:
    require(batch % processes == 0, f"must be a multiple of {processes} processes", "batch", batch)


def _check_recipe(recipe: Recipe, shards: Shards, device: Device) -> None:
    config = recipe.pretraining
    check_batch(config.batch, device.world_size)
    share, length = config.batch // device.world_size, shards.max_length
    at_once, positions = config.device_batch or share, recipe.architecture.max_positions
    probability = config.mask_probability
    for holds, field, value, expected in (
        (length <= positions, "max_positions", positions, f"at least {length}, as the shards have"),
        (probability * config.batch * length >= 1, "mask_probability", probability, "larger"),
        (share % at_once == 0, "device_batch", at_once, f"a divisor of {share}"),
        (at_once % device.cores == 0, "batch", config.batch, f"shared by {device.cores} cores"),
    ):
        require(holds, f"must be {expected}", field, value)
