"""Converts weights to and from transformers' ELECTRA; writes the folders that AutoModel loads."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from amazon_electra.beam_jobs.core.files import write_json
from amazon_electra.beam_jobs.core.nesting import read_json
from amazon_electra.model.encoders.config import POOLING, TRAINED_LENGTH
from amazon_electra.model.encoders.weight_mapping import EMBEDDINGS

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
"""The last one where it is WordPiece."""
SENTENCE_TRANSFORMERS = "sentence_transformers.models"


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
    """Give all token types the vector of type 0, for weights that were trained on no other."""
    # a row that was never trained is noise as large as a word's vector
    types = weights[EMBEDDINGS["embeddings.token_type"]]
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


def write_pooling(folder: Path, width: int, max_length: int, mode: str, encoder: str = "") -> None:
    """Write for sentence-transformers what stands for a text: its first token (cls) or the mean."""
    modules = [
        {"idx": 0, "name": "0", "path": encoder, "type": f"{SENTENCE_TRANSFORMERS}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{SENTENCE_TRANSFORMERS}.Pooling"},
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / encoder / "sentence_bert_config.json", {"max_seq_length": max_length})
    pooling = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": mode == "cls",
        "pooling_mode_mean_tokens": mode == "mean",
    }
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_json(folder / "1_Pooling" / "config.json", pooling)


@contextmanager
def write_folder(folder: Path, vocabulary: Path, card: str) -> Iterator[Path]:
    """Give a folder for config.json and weights; add tokenizer, pooling and card, and rename it."""
    temporary = folder.with_name(f"writing-{folder.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    yield temporary
    for name in TOKENIZER_FILES:
        if (vocabulary / name).exists():
            shutil.copyfile(vocabulary / name, temporary / name)
    config = read_json(temporary / "config.json")
    mode = "cls" if config.get(POOLING) == "cls" else "mean"
    width = config.get("hidden_size", config.get("dim"))
    write_pooling(temporary, width, config[TRAINED_LENGTH], mode)
    (temporary / "README.md").write_text(card, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(temporary, folder)
