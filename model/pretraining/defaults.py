"""Chooses what a training that begins with loaded weights does by default: objective, settings."""

from collections.abc import Mapping
from pathlib import Path

from amazon_electra.beam_jobs.core.errors import require
from amazon_electra.model.encoders.config import (
    START,
    TRAINED_LENGTH,
    find_kind,
    read_architecture,
    read_config,
)
from amazon_electra.model.encoders.known import METADATA_FILE
from amazon_electra.model.encoders.places import name_place
from amazon_electra.model.encoders.weights import has_mlm_head, load_masked_lm, read_weights
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import (
    GENERATOR_DEPTH,
    MASK_PROBABILITIES,
    NEW_HEAD_SETTINGS,
    OLD_HEAD_SETTINGS,
)


def choose_settings(
    folder: Path, given: Mapping[str, str], has_generator: bool = False
) -> dict[str, str]:
    """Return the settings that a folder of start weights asks for, as texts; `given` win. An
    encoder without a discriminator goes on as a masked language model, a discriminator as an
    ELECTRA; where that lacks its generator (`has_generator`) or has another trunk, its first layers
    become the generator.
    """
    with name_place("start_from", folder):
        config = read_config(folder)
        shape, kind = read_architecture(config), config["model_type"]
        is_ours = find_kind(config) is not None  # else transformers' own module holds it
        # of its weights: config.json may name a head that is not there, or has its own table
        has_lm_head = (
            has_mlm_head(read_weights(folder, config)) if is_ours else not load_masked_lm(folder)[1]
        )
    is_generator = has_lm_head or "ElectraForMaskedLM" in (config.get("architectures") or [])
    is_discriminator = is_ours and kind == "electra" and not is_generator
    # what model.pretrain has written goes on with its recipe's rates
    is_published = (folder / METADATA_FILE).is_file() or TRAINED_LENGTH not in config

    chosen: dict[str, str] = {}
    objective = given.get("objective", "electra" if is_discriminator else "mlm")
    require(is_ours or objective == "mlm", f"{kind} is trained as mlm only", "objective", objective)
    if not is_discriminator and objective == "mlm":
        chosen["objective"] = objective
    if kind in MASK_PROBABILITIES:
        chosen["mask_probability"] = str(MASK_PROBABILITIES[kind])
    kind_of_objective = find_objective(objective)
    is_new_pair = kind_of_objective.has_generator and not has_generator
    is_untrained_pair = is_published or not is_discriminator
    if is_new_pair and is_untrained_pair and "generator_multiplier" not in given:
        layers = max(1, round(shape.layers * GENERATOR_DEPTH))
        chosen |= {"generator_multiplier": "1", "generator_layers": str(layers)}
    if is_published and not kind_of_objective.has_pairs:
        is_bare = objective == "mlm" and not has_lm_head
        chosen |= NEW_HEAD_SETTINGS if is_bare else OLD_HEAD_SETTINGS
    # token types that others have trained: classifiers of one text see type 0 alone, and what type
    # 1 means for pairs is known already
    if START not in config and not (kind_of_objective.has_pairs or kind_of_objective.has_generator):
        chosen["segment_probability"] = "0"
    if "learning_rate" in given:
        chosen.pop("trunk_learning_rate", None)
    return {name: text for name, text in chosen.items() if name not in given}
