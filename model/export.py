"""Converts weights to and from transformers' ELECTRA; writes the folders that AutoModel loads."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from model.pretraining.network.transformers_config import Role

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


def map_names(
    role: Role, layers: int, project: bool, trunk: str | None = None
) -> dict[str, tuple[str, ...]]:
    """Map each of our parameter names to transformers' names.

    Three names mean that ours stacks theirs (query, key, value). `trunk` is our prefix of the
    encoder, by default the role; an MLM model exports its `encoder` as a generator.
    """
    trunk = trunk or role
    pairs: list[tuple[str, tuple[str, ...]]] = [
        (ours, (theirs,)) for ours, theirs in _EMBEDDINGS.items()
    ]
    for kind in ("weight", "bias"):
        if project:
            pairs.append((f"{trunk}.project.{kind}", (f"electra.embeddings_project.{kind}",)))
        for n in range(layers):
            theirs = f"electra.encoder.layer.{n}"
            stacked = tuple(
                f"{theirs}.attention.self.{part}.{kind}" for part in ("query", "key", "value")
            )
            pairs.append((f"{trunk}.layers.{n}.qkv.{kind}", stacked))
            pairs += [
                (f"{trunk}.layers.{n}.{a}.{kind}", (f"{theirs}.{b}.{kind}",))
                for a, b in _LAYER.items()
            ]
        pairs += [(f"{a}.{kind}", (f"{b}.{kind}",)) for a, b in _list_head_names(role, trunk)]
    if role == "generator":
        pairs.append((f"{trunk}_head.bias", ("generator_lm_head.bias",)))
    return dict(pairs)


def _list_head_names(role: Role, trunk: str) -> Iterable[tuple[str, str]]:
    if role == "discriminator":
        return _DISCRIMINATOR_HEAD.items()
    return [
        (f"{trunk}_head.dense", "generator_predictions.dense"),
        (f"{trunk}_head.norm", "generator_predictions.LayerNorm"),
    ]


def convert_to_transformers(
    weights: Mapping[str, Tensor], mapping: dict[str, tuple[str, ...]]
) -> dict[str, Tensor]:
    """Return copies of the weights by transformers' names, on the CPU, in fp32."""
    converted: dict[str, Tensor] = {}
    for ours, theirs in mapping.items():
        tensor = weights[ours].detach().float().cpu()
        for name, part in zip(theirs, tensor.chunk(len(theirs)), strict=True):
            converted[name] = part.clone().contiguous()
    return converted


def copy_type_row(weights: dict[str, Tensor]) -> None:
    """Give all token types the vector of type 0, for weights that were trained on no other.

    A row that was never trained is noise as large as a word's vector.
    """
    types = weights[_EMBEDDINGS["embeddings.token_type"]]
    types[1:] = types[0].clone()


def convert_from_transformers(
    weights: dict[str, Tensor], mapping: dict[str, tuple[str, ...]]
) -> dict[str, Tensor]:
    """Return the weights that are there by our names."""
    return {
        ours: torch.cat([weights[name] for name in theirs])
        for ours, theirs in mapping.items()
        if all(name in weights for name in theirs)
    }


def write_model_folder(
    folder: Path, config: dict[str, Any], weights: dict[str, Tensor], vocabulary: Path, card: str
) -> Path:
    """Write a transformers folder, whole or not at all, and return it."""
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
