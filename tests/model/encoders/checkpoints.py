"""Published checkpoints in small: transformers' own classes, random weights, save_pretrained."""

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.model.synthetic_shards import write_vocabulary

SIZE = 100
SHAPE = {"num_hidden_layers": 3, "hidden_size": 32, "intermediate_size": 48}
SHAPE |= {"num_attention_heads": 4, "max_position_embeddings": 64}
DISTILBERT = {"n_layers": 3, "dim": 32, "hidden_dim": 48, "n_heads": 4}
DISTILBERT |= {"max_position_embeddings": 64}
KINDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "BERT with its head": ("BertForMaskedLM", SHAPE | {"layer_norm_eps": 1e-5}, "bert"),
    "MiniLM, a bare trunk": ("BertModel", SHAPE, "bert"),
    "BERT for both objectives": ("BertForPreTraining", SHAPE, "bert"),
    "DistilBERT with its head": ("DistilBertForMaskedLM", DISTILBERT, "distilbert"),
    "DistilBERT, a bare trunk": ("DistilBertModel", DISTILBERT, "distilbert"),
    "ELECTRA's discriminator": ("ElectraForPreTraining", SHAPE | {"embedding_size": 16}, "electra"),
    "ELECTRA's generator": ("ElectraForMaskedLM", SHAPE | {"embedding_size": 16}, "electra"),
    "ELECTRA of one width": ("ElectraModel", SHAPE | {"embedding_size": 32}, "electra"),
}
"""Class, fields of config.json and kind, by what it is."""


def write_checkpoint(folder: Path, what: str = "MiniLM, a bare trunk", **changed: Any) -> Path:
    """Write a transformers folder with weights far from their usual start, and a vocabulary."""
    name, fields, _ = KINDS[what]
    model_class = getattr(transformers, name)
    write_vocabulary(folder, SIZE)
    torch.manual_seed(7)
    model = model_class(model_class.config_class(**{"vocab_size": SIZE} | fields | changed)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder
