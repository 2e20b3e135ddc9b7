"""Describes an encoder as transformers does: the config.json of its folder. Imports no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from beam_jobs.job.files import link_path, write_json
from model.config import Architecture
from model.presets import Preset
from model.pretraining.input.sequences import Shards
from model.published.architecture import TRAINED_LENGTH
from model.published.vocabulary import read_words

Role = Literal["discriminator", "generator"]
START = "pretraining_start"
"""Field of config.json, ours: how the weights were drawn that pre-training began with. Its own
`initializer_range` is of new heads, which transformers draws.
"""
HEAD_RANGE = 0.02  # google
PADDING = "[PAD]"


def build_transformers_config(
    role: Role,
    architecture: Architecture,
    vocabulary_size: int,
    dropout: float,
    trained_length: int,
    padding_id: int | None = 0,
    start: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the content of config.json; `architecture` is that of the exported network.

    `trained_length` is the number of tokens that sequences had in training: the positions after it
    have embeddings too, but they are noise. transformers never trains the vector of `padding_id`.
    `start` is what `describe_start` returns; None: of weights that others have trained.
    """
    head = "ElectraForPreTraining" if role == "discriminator" else "ElectraForMaskedLM"
    return {
        "architectures": [head],
        "model_type": "electra",
        "attention_probs_dropout_prob": dropout,
        "embedding_size": architecture.embedding,
        "hidden_act": "gelu",
        "hidden_dropout_prob": dropout,
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


def read_architecture(config: Mapping[str, Any]) -> Architecture:
    """Return the shape that one of our own config.json describes, its generator's included where
    the start weights were drawn after that one's.
    """
    names = ("generator_multiplier", "generator_layers")
    generator = {name: config[START][name] for name in names if name in config[START]}
    return Architecture(
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        heads=config["num_attention_heads"],
        embedding=config["embedding_size"],
        max_positions=config["max_position_embeddings"],
        type_vocabulary_size=config["type_vocab_size"],
        layer_norm_eps=config["layer_norm_eps"],
        **({"generator_multiplier": 1.0} | generator),
    )


def describe_start(preset: Preset, trunk: str) -> dict[str, Any]:
    """Return how the start weights of a network of this pre-training are drawn, besides its shape.

    A discriminator's are drawn after those of its generator, by the same stream of random numbers.
    """
    shape, training = preset.architecture, preset.pretraining
    told = {
        "initializer_range": training.initializer_range,
        "has_segments": training.has_segments,
    }
    if trunk != "discriminator":
        return told
    names = ("generator_multiplier", "generator_layers")
    return told | {name: getattr(shape, name) for name in names}


def read_padding_id(vocabulary: Path) -> int | None:
    """Return the id of [PAD] in a folder's vocab.txt; a published one may have it anywhere, or not
    at all.
    """
    entries = read_words(vocabulary / "vocab.txt")
    return entries.index(PADDING) if PADDING in entries else None


def read_trained_length(folder: Path) -> int | None:
    """Return how many tokens a model folder's encoder was trained at; None if it does not say."""
    length: int | None = _read_field(folder, TRAINED_LENGTH)
    return length


def read_start(folder: Path) -> dict[str, Any] | None:
    """Return how the start weights of a model folder's encoder were drawn; None if it does not
    say: others have trained it.
    """
    start: dict[str, Any] | None = _read_field(folder, START)
    return start


def _read_field(folder: Path, name: str) -> Any:
    path = folder / "config.json"
    return json.loads(path.read_text(encoding="utf-8")).get(name) if path.is_file() else None


def write_architecture(folder: Path, preset: Preset, shards: Shards) -> Path:
    """Write what a random encoder shares with one that is pre-trained on these shards, its
    config.json and tokenizer, before that one is there; return the folder.
    """
    is_electra = preset.pretraining.objective == "electra"
    config = build_transformers_config(
        "discriminator" if is_electra else "generator",
        preset.architecture,
        shards.vocabulary_size,
        preset.pretraining.dropout,
        shards.max_length,
        read_padding_id(shards.vocabulary),
        describe_start(preset, "discriminator" if is_electra else "encoder"),
    )
    link_path(shards.vocabulary, folder)
    write_json(folder / "config.json", config)
    return folder


def copy_architecture(folder: Path, origin: Path, shards: Shards) -> Path:
    """Write what a random encoder shares with one that starts from a published one and goes on with
    these shards: the shape of that one, the vocabulary of the shards; return the folder.
    """
    config = json.loads((origin / "config.json").read_text(encoding="utf-8"))
    link_path(shards.vocabulary, folder)
    write_json(folder / "config.json", config | {"vocab_size": shards.vocabulary_size})
    return folder
