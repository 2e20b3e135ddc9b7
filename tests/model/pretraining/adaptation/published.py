"""A tiny published encoder, and shards of its vocabulary."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from tests.model.pretraining.runs import TOKENIZER, pretrain
from tests.model.synthetic_shards import write_shards

ENTRIES = 100
SETTINGS = {"batch": 8, "dropout": 0.1, "log_every": 1, "checkpoint_every": 5, "precision": "fp32"}
SETTINGS |= {"learning_rate": 1e-3}


def write_all(folder: Path) -> Path:
    """Write `shards` and `bert` into the folder and return it."""
    vocabulary = write_shards(folder / "shards", sequences=100, size=ENTRIES) / "vocabulary"
    write_bert(folder / "bert", vocabulary)
    return folder


def write_bert(folder: Path, vocabulary: Path) -> None:
    config = BertConfig(
        vocab_size=ENTRIES,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.mul_(10)  # words count for more than places
    model.save_pretrained(folder)
    for name in TOKENIZER:
        shutil.copyfile(vocabulary / name, folder / name)


def train(made: Path, output: Path, *words: object, steps: int = 20, **settings: object) -> dict:
    """Train from the BERT in `made`."""
    words = ("--start-from", made / "bert", *words)
    return pretrain(made / "shards", output, *words, steps=steps, **SETTINGS | settings)


def read_weights(output: Path) -> dict[str, Tensor]:
    """Return the weights of the encoder that a run wrote."""
    return load_file(output / "encoder" / "model.safetensors")


def read_origin(made: Path) -> dict[str, Tensor]:
    """Return the trunk's weights in `made` by the names in `read_weights`."""
    tensors = load_file(made / "bert" / "model.safetensors")
    return {
        name.replace("bert.", "electra.", 1): tensor
        for name, tensor in tensors.items()
        if name.startswith("bert.")
    }
