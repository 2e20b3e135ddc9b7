"""Builds a run from its recipe, shards, device and budget."""

import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

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
from amazon_electra.model.pretraining import loop
from amazon_electra.model.pretraining.checkpoint import identify_run
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
from amazon_electra.model.pretraining.network.initial_weights import (
    Origin,
    describe_origin,
    load_weights,
)
from amazon_electra.model.pretraining.network.masked_prediction import OwnModel, PretrainingModel
from amazon_electra.model.pretraining.objectives import MatrixFlops, find_objective
from amazon_electra.model.pretraining.validation import VALIDATED_SHARE, VALIDATIONS, Validation
from amazon_electra.model.recipes import Recipe

SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Budget:
    """A time or a number of operations; one of the two is set."""

    seconds: float | None = None
    flops: float | None = None


def parse_budget(text: str) -> Budget:
    """Parse 30min, 2h, 45s, 1d, or operations in matrix products: 1.5e15flops."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)\s*([a-z]+)", text.strip().lower())
    number, unit = (float(match[1]), match[2]) if match else (0.0, "")
    is_budget = unit in (*SECONDS, "flops") and 0 < number < math.inf
    require(is_budget, "write 30min, 2h, 1d or operations: 1.5e15flops", "budget", text)
    return Budget(flops=number) if unit == "flops" else Budget(seconds=number * SECONDS[unit])


def build_training(
    recipe: Recipe,
    shards: Shards,
    device: Device,
    output: Path,
    budget: Budget | None = None,
    dev: Shards | None = None,
    origin: Origin | None = None,
) -> loop.Training:
    """Return a run at its first step; UserError if settings, shards and device do not fit."""
    if budget and budget.flops:
        sequence = estimate_sequence_flops(recipe, shards, device.has_document_attention)
        of_a_step = sequence * recipe.pretraining.batch
        given, is_enough = f"{budget.flops:.3g}flops", budget.flops >= of_a_step
        require(is_enough, f"one step takes {of_a_step:.3g}", "budget", given)
        steps = int(budget.flops / of_a_step)
        recipe = replace(recipe, pretraining=recipe.pretraining.replace(steps=steps))
    _check_recipe(recipe, shards, device)
    config = recipe.pretraining
    shape, size = recipe.architecture, shards.vocabulary_size
    model, initial = load_model(recipe, shards, device.dtype, origin)
    if origin and device.is_rank0:
        print(describe_origin(model, shape, origin, initial), file=sys.stderr)
    model.to(device.torch)
    identity = identify_run(recipe, shards) | {"budget_seconds": budget.seconds if budget else None}
    batches = build_batches(config, shards, device.rank, device.world_size)
    trained_length = shards.max_length
    if origin:  # a folder that does not say how many positions were trained trained all
        others = find_json(origin.main / "config.json").get(TRAINED_LENGTH)
        trained_length = max(trained_length, others or shape.max_positions)
    share = recipe.adaptation.origin_average if origin else 0.0
    training = loop.Training(
        config=config,
        model=model,
        device=device,
        batches=batches,
        folder=output,
        identity=identity | {"origin": origin.compute_fingerprint() if origin else None},
        matrix_flops=MatrixFlops.derive(shape, size, config.objective),
        trained_length=trained_length,
        budget_seconds=budget.seconds if budget else None,
        adaptation=recipe.adaptation,
        start=describe_start(origin.main) if origin else {},
        loaded=LoadedTrunk(model, share) if share else None,
    )
    if dev:
        training.validation = build_validation(config, shards, dev)
    if origin:
        training.identity |= recipe.adaptation.model_dump()
    return training


def load_model(
    recipe: Recipe, shards: Shards, dtype: torch.dtype, origin: Origin | None
) -> tuple[PretrainingModel, list[str]]:
    """Return the model with its start weights, and the names of those that are new."""
    config = recipe.pretraining
    if origin and not origin.is_ours:
        module, new = origin.load_module(config, dtype, shards)
        bias = getattr(module.network.get_output_embeddings(), "bias", None)
        if new and bias is not None:
            set_output_bias(bias, shards)
        return module, new
    model = build_model(recipe, shards.vocabulary_size, dtype)
    initialize_weights(model, config.seed, config.initializer_range)
    if origin is None:
        return model, []
    initial = load_weights(model, recipe.architecture, origin, shards.vocabulary)
    has_generator = find_objective(config.objective).has_generator
    head = "generator_head" if has_generator else f"{model.trunk_name}_head"
    if f"{head}.bias" in initial:
        set_output_bias(getattr(model, head).bias, shards)
    return model, initial


def build_model(recipe: Recipe, vocabulary_size: int, dtype: torch.dtype) -> OwnModel:
    """Return the model of the recipe's objective, its weights not yet initialized."""
    network = find_objective(recipe.pretraining.objective).load_network()
    return network(vocabulary_size, recipe.architecture, recipe.pretraining, dtype)


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
    """Return the batches of a run, masked as its objective asks."""
    special = read_special_tokens(shards.vocabulary)
    objective = find_objective(config.objective)
    fractions = objective.choose_replacement(config.mask_token_fraction)
    return Batches(
        stream=Stream(shards, config.seed),
        size=config.batch,
        special=special,
        fraction=config.mask_probability,
        replacement=Replacement(special.mask, *fractions, shards.vocabulary_size),
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


def read_special_tokens(vocabulary: Path) -> SpecialTokens:
    """Return the ids of the special tokens; UserError where there is no mask."""
    cls, sep = find_specials(Tokenizer.from_file(str(vocabulary / "tokenizer.json")))
    mask = find_special(vocabulary, "mask")
    if mask is None:
        raise UserError(f"{vocabulary}: its tokenizer has no mask token")
    return SpecialTokens(cls, sep, mask)


def check_batch(batch: int, processes: int) -> None:
    """Raise UserError where so many processes cannot share a batch."""
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
