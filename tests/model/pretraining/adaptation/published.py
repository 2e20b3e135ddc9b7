"""A tiny published encoder, shards of its vocabulary and a corpus whose stars follow from words."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from tests.corpus_folder import SCHEMA, row
from tests.model.pretraining.runs import TOKENIZER, pretrain
from tests.model.synthetic_shards import write_shards

ENTRIES = 100
SETTINGS = {"batch": 8, "dropout": 0.1, "log_every": 1, "checkpoint_every": 5, "precision": "fp32"}
SETTINGS |= {"learning_rate": 1e-3}


def write_all(folder: Path) -> Path:
    """Write `shards`, `bert` and `corpus` into the folder and return it."""
    vocabulary = write_shards(folder / "shards", sequences=100, size=ENTRIES) / "vocabulary"
    write_bert(folder / "bert", vocabulary)
    write_corpus(folder / "corpus")
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


def write_corpus(
    folder: Path, splits: tuple[str, ...] = ("train", "dev", "test"), reviews: int = 120
) -> None:
    """Bad reviews are of the first 45 words, good ones of as many from the 31st on."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = []
    for i in range(reviews):
        stars, split = (1, 5)[i % 2], ("train", "dev", "test")[i % 3]
        chosen = rng.integers(0, 45, size=8) + (30 if stars == 5 else 0)
        if split in splits:
            rows.append(row([" ".join(f"word{n}" for n in chosen)], split) | {"stars": stars})
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "corpus-00000.parquet")


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
