"""Reads the shape of a published encoder from its config.json; refuses what has no place here."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beam_jobs.job.errors import UserError
from model.config import Architecture
from model.published.kinds import KINDS, OTHER_KINDS, Kind

Config = Mapping[str, Any]
Fail = Callable[[str], UserError]
"""Makes the error that names option and folder."""

TRAINED_LENGTH = "trained_length"  # field of config.json, ours
EXACT_GELU = ("gelu", "gelu_python")  # gelu_new and others are approximations: other numbers
LEAST_TYPES = 2
"""Rows of token types; an encoder with fewer gets copies of its first."""
CHOSEN_HERE = ("generator_multiplier", "generator_layers", "max_positions")
"""Fields of Architecture that may be set although the origin has others."""
_REFUSED = {
    "auto_map": "code of its own (auto_map), which is never run",
    "is_decoder": "a decoder (is_decoder)",
    "is_encoder_decoder": "an encoder with a decoder (is_encoder_decoder)",
    "add_cross_attention": "cross-attention (add_cross_attention)",
    "quantization_config": "quantized weights (quantization_config)",
    "pruned_heads": "layers with fewer heads than others (pruned_heads)",
}


def read_config(folder: Path, fail: Fail) -> Config:
    """Return config.json with its model_type; old BERTs have none."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise fail("put its config.json beside the weights") from None
    except ValueError as error:
        raise fail(f"config.json is damaged ({error}); copy it again") from None
    if not isinstance(config, dict):
        raise fail("config.json is no object of fields; copy it again")
    if "model_type" not in config and {"hidden_size", "type_vocab_size"} <= set(config):
        config["model_type"] = "electra" if "embedding_size" in config else "bert"
    return config


def find_kind(config: Config, fail: Fail) -> Kind:
    """Return the kind of a published encoder; UserError names what has no place in ours."""
    name = config.get("model_type", "")
    for field, what in _REFUSED.items():
        if config.get(field):
            raise fail(f"this model has {what}, for which our encoder has no place")
    if name not in KINDS:
        what = f", {OTHER_KINDS[name]}" if name in OTHER_KINDS else ""
        raise fail(
            f"config.json says model_type={name or '(none)'}{what}; give one of {', '.join(KINDS)}"
        )
    kind = KINDS[name]
    activation = config.get(kind.activation, "gelu")
    if activation not in EXACT_GELU:
        raise fail(f"its activation is {activation} ({kind.activation}), our encoder has gelu only")
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise fail(
            f"it has relative positions (position_embedding_type={positions}), our encoder has "
            "absolute ones only"
        )
    return kind


def read_architecture(
    config: Config, fail: Fail, generator_multiplier: float = 1.0
) -> Architecture:
    """Return the shape that config.json describes; `generator_multiplier` is not in it."""
    kind = find_kind(config, fail)
    values = {
        ours: config.get(theirs, kind.defaults.get(ours)) for ours, theirs in kind.fields.items()
    }
    missing = [theirs for ours, theirs in kind.fields.items() if values[ours] is None]
    if missing:
        raise fail(f"config.json lacks {', '.join(missing)}; copy it again")
    values["type_vocabulary_size"] = max(LEAST_TYPES, values.get("type_vocabulary_size") or 0)
    values["max_positions"] -= count_skipped_positions(config, kind)
    try:
        return Architecture(**values, generator_multiplier=generator_multiplier)
    except (UserError, TypeError) as error:
        raise fail(f"config.json: {error}") from None


def count_skipped_positions(config: Config, kind: Kind) -> int:
    """Return how many rows of the position table stand before the first token's."""
    return int(config.get("pad_token_id") or 0) + 1 if kind.counts_from_padding else 0
