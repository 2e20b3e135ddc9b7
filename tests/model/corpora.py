"""Tiny corpora and encoders that tests build for themselves."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraForPreTraining,
    PreTrainedModel,
)

from tests.corpus_folder import SCHEMA
from tests.tokenizer_kinds import BERT, write_word_pieces

GOOD = ("great", "lovely", "sturdy", "perfect", "splendid")
BAD = ("awful", "broken", "useless", "flimsy", "terrible")
THINGS = ("lamp", "kettle", "charger", "blanket", "book", "knife")
SHARES = {"pretrain": 0.4, "train": 0.3, "dev": 0.12, "test": 0.18}


def write_corpus(folder: Path, reviews: int = 800, seed: int = 0, files: int = 2) -> Path:
    """A corpus folder whose stars follow from its words."""
    generator = np.random.default_rng(seed)
    rows = [_row(i, generator) for i in range(reviews)]
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(files):
        table = pa.Table.from_pylist(rows[k::files], schema=SCHEMA)
        pq.write_table(table, folder / f"corpus-{k:05}.parquet", compression="zstd")
    return folder


def _row(i: int, generator: np.random.Generator) -> dict:
    stars = int(generator.integers(1, 6))
    words = BAD if stars <= 2 else GOOD if stars >= 4 else GOOD + BAD
    length = int(generator.integers(1, 6))
    sentences = [
        f"The {generator.choice(THINGS)} is {generator.choice(words)} and number {i}."
        for _ in range(length)
    ] + [("really " * stars).strip() + "."]
    review_id = hashlib.blake2b(str(i).encode(), digest_size=16).digest()
    return {
        "review_id": review_id,
        "text_hash": review_id,
        "stars": None if i % 50 == 0 else stars,
        "source": "lamps" if i % 3 else "books",
        "split": str(generator.choice(list(SHARES), p=list(SHARES.values()))),
        "has_title": False,
        "sentences": sentences,
    }


def write_tokenizer(folder: Path) -> int:
    """WordPiece over the corpus's words and letters; returns the vocabulary's size."""
    letters = "0123456789abcdefghijklmnopqrstuvwxyz"
    words = "the is and number really a on in who what where when works fits battery question"
    words += " answer cat sat mat london peter"
    entries = [*letters, *(f"##{one}" for one in letters), *".,?!-", *words.split()]
    entries = list(dict.fromkeys([*entries, *THINGS, *GOOD, *BAD]))
    config = '{"tokenizer_class": "BertTokenizer", "do_lower_case": true, "model_max_length": 512}'
    write_word_pieces(folder, entries, config)
    torch.manual_seed(0)  # of the weights that are drawn next
    return len(BERT) + len(entries)


def write_electra(folder: Path, layers: int = 2) -> Path:
    """A discriminator as model.pretrain exports it, untrained."""
    size = write_tokenizer(folder)
    config = ElectraConfig(
        vocab_size=size, embedding_size=32, hidden_size=32, num_hidden_layers=layers,
        num_attention_heads=2, intermediate_size=64, max_position_embeddings=512,
    )  # fmt: skip
    return _save(ElectraForPreTraining(config), folder)


def write_bert(folder: Path) -> Path:
    size = write_tokenizer(folder)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return _save(BertModel(BertConfig(vocab_size=size, **shape, intermediate_size=64)), folder)


def write_distilbert(folder: Path) -> Path:
    """No token types, and other names for everything."""
    size = write_tokenizer(folder)
    config = DistilBertConfig(vocab_size=size, dim=32, n_layers=2, n_heads=2, hidden_dim=64)
    return _save(DistilBertModel(config), folder)


def _save(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder
