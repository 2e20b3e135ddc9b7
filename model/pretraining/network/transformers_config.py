"""Describes an encoder as transformers does: the config.json of its folder. Imports no torch."""

import json
from pathlib import Path
from typing import Any, Literal

from beam_jobs.job.files import link_path, write_json
from model.config import Architecture
from model.presets import Preset
from model.pretraining.input.sequences import Shards
from model.published.architecture import TRAINED_LENGTH
from model.published.vocabulary import read_words

Role = Literal["discriminator", "generator"]
PADDING = "[PAD]"


def build_transformers_config(
    role: Role,
    architecture: Architecture,
    vocabulary_size: int,
    dropout: float,
    trained_length: int,
    padding_id: int | None = 0,
) -> dict[str, Any]:
    """Return the content of config.json; `architecture` is that of the exported network.

    `trained_length` is the number of tokens that sequences had in training: the positions after it
    have embeddings too, but they are noise. transformers never trains the vector of `padding_id`.
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
        "initializer_range": 0.02,
        "intermediate_size": architecture.intermediate,
        "layer_norm_eps": architecture.layer_norm_eps,
        "max_position_embeddings": architecture.max_positions,
        "num_attention_heads": architecture.heads,
        "num_hidden_layers": architecture.layers,
        "pad_token_id": padding_id,
        "tie_word_embeddings": True,
        TRAINED_LENGTH: trained_length,
        "type_vocab_size": architecture.type_vocabulary_size,
        "vocab_size": vocabulary_size,
    }


def read_padding_id(vocabulary: Path) -> int | None:
    """Return the id of [PAD] in a folder's vocab.txt; a published one may have it anywhere, or not
    at all.
    """
    entries = read_words(vocabulary / "vocab.txt")
    return entries.index(PADDING) if PADDING in entries else None


def read_trained_length(folder: Path) -> int | None:
    """Return how many tokens a model folder's encoder was trained at; None if it does not say."""
    path = folder / "config.json"
    if not path.is_file():
        return None
    length: int | None = json.loads(path.read_text(encoding="utf-8")).get(TRAINED_LENGTH)
    return length


def write_architecture(folder: Path, preset: Preset, shards: Shards) -> Path:
    """Write what a random encoder shares with one that is pre-trained on these shards, its
    config.json and tokenizer, before that one is there; return the folder.
    """
    config = build_transformers_config(
        "discriminator" if preset.pretraining.objective == "electra" else "generator",
        preset.architecture,
        shards.vocabulary_size,
        preset.pretraining.dropout,
        shards.max_length,
        read_padding_id(shards.vocabulary),
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
