"""Our weights ↔ transformers' ELECTRA, name by name, and the folders AutoModel and AutoTokenizer load."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from model.presets import Architecture

Role = Literal["discriminator", "generator"]
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")

_EMBEDDINGS = {
    "embeddings.word": "electra.embeddings.word_embeddings.weight",
    "embeddings.position": "electra.embeddings.position_embeddings.weight",
    "embeddings.token_type": "electra.embeddings.token_type_embeddings.weight",
    "embeddings.norm.weight": "electra.embeddings.LayerNorm.weight",
    "embeddings.norm.bias": "electra.embeddings.LayerNorm.bias",
}
_LAYER = {
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
_DISCRIMINATOR_HEAD = {
    "discriminator_head.dense": "discriminator_predictions.dense",
    "discriminator_head.out": "discriminator_predictions.dense_prediction",
}


def names(role: Role, layers: int, project: bool, trunk: str | None = None) -> dict[str, tuple[str, ...]]:
    """Our parameter name → transformers' names; three names mean that ours is theirs stacked (query, key, value).

    `trunk` is our prefix of the encoder, by default the role; an MLM model exports its `encoder` as a generator.
    """
    trunk = trunk or role
    pairs: list[tuple[str, tuple[str, ...]]] = [(ours, (theirs,)) for ours, theirs in _EMBEDDINGS.items()]
    for kind in ("weight", "bias"):
        if project:
            pairs.append((f"{trunk}.project.{kind}", (f"electra.embeddings_project.{kind}",)))
        for n in range(layers):
            theirs = f"electra.encoder.layer.{n}"
            stacked = tuple(f"{theirs}.attention.self.{part}.{kind}" for part in ("query", "key", "value"))
            pairs.append((f"{trunk}.layers.{n}.qkv.{kind}", stacked))
            pairs += [(f"{trunk}.layers.{n}.{a}.{kind}", (f"{theirs}.{b}.{kind}",)) for a, b in _LAYER.items()]
        pairs += [(f"{a}.{kind}", (f"{b}.{kind}",)) for a, b in _head(role, trunk)]
    if role == "generator":
        pairs.append((f"{trunk}_head.bias", ("generator_lm_head.bias",)))
    return dict(pairs)


def _head(role: Role, trunk: str) -> Iterable[tuple[str, str]]:
    if role == "discriminator":
        return _DISCRIMINATOR_HEAD.items()
    return [
        (f"{trunk}_head.dense", "generator_predictions.dense"),
        (f"{trunk}_head.norm", "generator_predictions.LayerNorm"),
    ]


def to_transformers(weights: Mapping[str, Tensor], mapping: dict[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """Copies, on the CPU, in fp32."""
    given: dict[str, Tensor] = {}
    for ours, theirs in mapping.items():
        tensor = weights[ours].detach().float().cpu()
        for name, part in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            given[name] = part.clone().contiguous()
    return given


def from_transformers(weights: dict[str, Tensor], mapping: dict[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """What of our model a transformers folder holds."""
    return {
        ours: torch.cat([weights[name] for name in theirs])
        for ours, theirs in mapping.items()
        if all(name in weights for name in theirs)
    }


def transformers_config(role: Role, architecture: Architecture, vocabulary_size: int, dropout: float) -> dict[str, Any]:
    """What goes into config.json; `architecture` is that of the network exported, a generator's its own."""
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
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": architecture.max_positions,
        "num_attention_heads": architecture.heads,
        "num_hidden_layers": architecture.layers,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "type_vocab_size": architecture.type_vocabulary_size,
        "vocab_size": vocabulary_size,
    }


def write_model(folder: Path, config: dict[str, Any], weights: dict[str, Tensor], vocabulary: Path, card: str) -> Path:
    """A transformers folder, complete or absent: written beside, then renamed."""
    temporary = folder.with_name(f"writing-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    (temporary / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(weights, temporary / "model.safetensors", metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        shutil.copyfile(vocabulary / name, temporary / name)
    (temporary / "README.md").write_text(card)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(temporary, folder)
    return folder
