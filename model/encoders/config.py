"""Reads and writes config.json, without torch; refuses what predicts no masked tokens."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, ValidationError

from amazon_electra.beam_jobs.core.errors import UserError, refuse, require
from amazon_electra.beam_jobs.core.files import link_path, write_json
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.beam_jobs.core.settings import join_mistakes
from amazon_electra.model.architecture import Architecture
from amazon_electra.model.encoders.vocabulary import find_special
from amazon_electra.model.encoders.weight_mapping import DEFAULTS, KINDS, Kind, Role
from amazon_electra.model.pretraining.input.sequences import Shards
from amazon_electra.model.pretraining.objectives import find_objective
from amazon_electra.model.recipes import Recipe

Config = Mapping[str, Any]

TRAINED_LENGTH = "trained_length"  # field of config.json, ours
POOLING = "text_pooling"
"""Field of config.json, ours: "cls" where the first token's state stands for a text, else mean."""
START = "pretraining_start"
"""Field of config.json, ours: how the weights were drawn that pre-training began with. Its own
`initializer_range` is of new heads, which transformers draws.
"""
HEAD_RANGE = 0.02  # google
DROPOUT = 0.1
"""Rate in config.json, for further training of an exported encoder (google)."""
EXACT_GELU = ("gelu", "gelu_python")  # gelu_new and others are approximations: other numbers
MIN_TYPES = 2
"""Rows of token types; an encoder with fewer gets copies of its first."""
CHOSEN_HERE = ("generator_multiplier", "generator_layers", "max_positions")
"""Fields of Architecture that may be set although the origin has others."""
_REFUSED = {
    "auto_map": "code of its own (auto_map), which is never run",
    "is_decoder": "a decoder (is_decoder)",
    "is_encoder_decoder": "an encoder with a decoder (is_encoder_decoder)",
    "add_cross_attention": "cross-attention (add_cross_attention)",
    "quantization_config": "quantized weights (quantization_config)",
}
COUNTED_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
"""Architectures whose first position is the one after the padding's index."""


class _Fields(BaseModel, extra="allow", strict=True):
    """The types of fields of config.json that are read before transformers checks them."""

    model_type: str | None = None
    position_embedding_type: str | None = None
    hidden_act: str | None = None
    activation: str | None = None
    max_position_embeddings: int | None = None
    pad_token_id: int | None = None
    type_vocab_size: int | None = None
    vocab_size: int | None = None
    trained_length: int | None = None


def read_config(folder: Path) -> Config:
    """Return config.json with its model_type; UserError for fields of another type."""
    try:
        content = (folder / "config.json").read_bytes()
        config = _Fields.model_validate_json(content).model_dump(exclude_unset=True)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError("put its config.json beside the weights") from None
    except ValidationError as invalid:
        raise UserError(f"config.json: {join_mistakes(invalid)}; copy it again") from None
    if "model_type" not in config and {"hidden_size", "type_vocab_size"} <= set(config):
        config["model_type"] = "electra" if "embedding_size" in config else "bert"
    return config


def find_kind(config: Config) -> Kind | None:
    """Return the kind that our encoder holds; None for a module of transformers' own."""
    name = config.get("model_type") or ""
    for field, what in _REFUSED.items():
        require(not config.get(field), f"this model has {what}, and predicts no masked tokens")
    kind = KINDS.get(name)
    is_absolute = config.get("position_embedding_type", "absolute") == "absolute"
    is_exact = kind and config.get(kind.activation, "gelu") in EXACT_GELU
    if is_exact and is_absolute and not config.get("pruned_heads"):
        return kind
    _read_foreign(config)
    return None


def _read_foreign(config: Config) -> Any:
    """Return transformers' configuration; UserError unless it is of a masked language model."""
    from transformers import (
        CONFIG_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    )

    name = config.get("model_type")
    kind = CONFIG_MAPPING[name] if name in CONFIG_MAPPING else None  # noqa: SIM401  # no `get`
    is_decoder = kind in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    is_masked = kind in MODEL_FOR_MASKED_LM_MAPPING and not is_decoder
    require(is_masked, f"config.json: model_type={name} predicts no masked tokens")
    with refuse(Exception, message="config.json: {}"):  # transformers raises many kinds
        return CONFIG_MAPPING[name].from_dict(dict(config))


def read_architecture(config: Config) -> Architecture:
    """Return the shape that config.json describes, which says nothing of a generator."""
    kind = find_kind(config)
    if kind:
        values = {ours: config.get(them, DEFAULTS.get(ours)) for ours, them in kind.fields.items()}
    else:
        foreign, fields = _read_foreign(config), KINDS["bert"].fields
        values = {ours: getattr(foreign, them, None) for ours, them in fields.items()}
        values["embedding"] = getattr(foreign, "embedding_size", values["hidden"])
        values["max_positions"] = count_positions(foreign) or DEFAULTS["max_positions"]
        values["layer_norm_eps"] = values["layer_norm_eps"] or DEFAULTS["layer_norm_eps"]
    values["type_vocabulary_size"] = max(MIN_TYPES, values.get("type_vocabulary_size") or 0)
    try:
        return Architecture(**values, generator_multiplier=1.0)
    except ValidationError as invalid:
        raise UserError(f"config.json: {join_mistakes(invalid)}") from None


def count_positions(config: Any) -> int | None:
    """Return the tokens that an encoder has positions for; None where they are relative."""
    if isinstance(config, Mapping):
        config = SimpleNamespace(**config)
    positions: int | None = getattr(config, "max_position_embeddings", None)
    if positions is None or getattr(config, "position_embedding_type", "absolute") != "absolute":
        return None
    if config.model_type in COUNTED_FROM_PADDING:
        padding = getattr(config, "pad_token_id", None)
        return positions - ((1 if padding is None else padding) + 1)
    return positions


def build_transformers_config(
    role: Role,
    architecture: Architecture,
    vocabulary_size: int,
    trained_length: int,
    padding_id: int | None = 0,
    start: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of config.json; `architecture` is the exported network's, `start` of
    `describe_start` or None for others' weights. Positions after `trained_length` have embeddings,
    but they are noise. transformers never trains the vector of `padding_id`.
    """
    head = "ElectraForPreTraining" if role == "discriminator" else "ElectraForMaskedLM"
    return {
        "architectures": [head],
        "model_type": "electra",
        "attention_probs_dropout_prob": DROPOUT,
        "embedding_size": architecture.embedding,
        "hidden_act": "gelu",
        "hidden_dropout_prob": DROPOUT,
        "hidden_size": architecture.hidden,
        "initializer_range": HEAD_RANGE,
        "intermediate_size": architecture.intermediate,
        "layer_norm_eps": architecture.layer_norm_eps,
        "max_position_embeddings": architecture.max_positions,
        "num_attention_heads": architecture.heads,
        "num_hidden_layers": architecture.layers,
        "pad_token_id": padding_id,
        "tie_word_embeddings": True,
        **({START: dict(start)} if start else {}),
        TRAINED_LENGTH: trained_length,
        "type_vocab_size": architecture.type_vocabulary_size,
        "vocab_size": vocabulary_size,
    }


def read_own_architecture(config: Config) -> Architecture:
    """Return the shape of one of our own config.json, with that of the generator drawn first."""
    names = ("generator_multiplier", "generator_layers")
    generator = {name: config[START][name] for name in names if name in config[START]}
    shape = {ours: config[them] for ours, them in KINDS["electra"].fields.items()}
    return Architecture(**shape | {"generator_multiplier": 1.0} | generator)


def describe_start(recipe: Recipe, trunk: str) -> dict[str, Any]:
    """Return how the start weights of a network are drawn: a trunk's after its generator's."""
    shape, training = recipe.architecture, recipe.pretraining
    start = {
        "objective": training.objective,
        "initializer_range": training.initializer_range,
        "has_segments": training.has_segments,
    }
    objective = find_objective(training.objective)
    if trunk != objective.trunk or not objective.has_generator:
        return start
    names = ("generator_multiplier", "generator_layers")
    return start | {name: getattr(shape, name) for name in names}


def write_architecture(folder: Path, recipe: Recipe, shards: Shards) -> Path:
    """Write config.json and tokenizer of an encoder before it is trained; return the folder."""
    objective = find_objective(recipe.pretraining.objective)
    config = build_transformers_config(
        objective.trunk_role,
        recipe.architecture,
        shards.vocabulary_size,
        shards.max_length,
        find_special(shards.vocabulary, "pad"),
        describe_start(recipe, objective.trunk),
    )
    link_path(shards.vocabulary, folder)
    write_json(folder / "config.json", config)
    return folder


def copy_architecture(folder: Path, origin: Path, shards: Shards) -> Path:
    """Write the shape of a published encoder with the vocabulary of shards; return the folder."""
    config = read_json(origin / "config.json")
    link_path(shards.vocabulary, folder)
    write_json(folder / "config.json", config | {"vocab_size": shards.vocabulary_size})
    return folder
