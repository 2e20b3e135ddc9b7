"""Published encoders in small: transformers' own classes, random weights, save_pretrained."""

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.model.synthetic_shards import write_vocabulary
from tests.tokenizer_kinds import BERT, ROBERTA, build_bpe, build_unigram, build_word_piece
from tests.tokenizer_kinds import write_published as save_tokenizer

SIZE = 100
SHAPE = {"num_hidden_layers": 3, "hidden_size": 32, "intermediate_size": 48}
SHAPE |= {"num_attention_heads": 4, "max_position_embeddings": 64}
DISTILBERT = {"n_layers": 3, "dim": 32, "hidden_dim": 48, "n_heads": 4}
DISTILBERT |= {"max_position_embeddings": 64}
CHECKPOINTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "BERT with its head": ("BertForMaskedLM", SHAPE | {"layer_norm_eps": 1e-5}, "bert"),
    "MiniLM, a bare trunk": ("BertModel", SHAPE, "bert"),
    "BERT for both objectives": ("BertForPreTraining", SHAPE, "bert"),
    "DistilBERT with its head": ("DistilBertForMaskedLM", DISTILBERT, "distilbert"),
    "DistilBERT, a bare trunk": ("DistilBertModel", DISTILBERT, "distilbert"),
    "ELECTRA's discriminator": ("ElectraForPreTraining", SHAPE | {"embedding_size": 16}, "electra"),
    "ELECTRA's generator": ("ElectraForMaskedLM", SHAPE | {"embedding_size": 16}, "electra"),
    "ELECTRA of one width": ("ElectraModel", SHAPE | {"embedding_size": 32}, "electra"),
}
"""Class, fields of config.json and kind, by what it is; all have the words of one vocabulary."""
LONG = SHAPE | {"num_hidden_layers": 2, "max_position_embeddings": 80, "initializer_range": 0.2}
FROM_PADDING = LONG | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
DEBERTA = LONG | {
    "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
    "type_vocab_size": 0, "pad_token_id": 0,
}  # fmt: skip
MODERN = LONG | {
    "num_hidden_layers": 3, "local_attention": 16, "global_attn_every_n_layers": 3,
    "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
FOREIGN = {
    "RoBERTa": ("RobertaForMaskedLM", FROM_PADDING, build_bpe, ROBERTA),
    "XLM-R": ("XLMRobertaForMaskedLM", FROM_PADDING, build_unigram, ROBERTA),
    "MPNet, a bare trunk": ("MPNetModel", FROM_PADDING, lambda: build_word_piece(ROBERTA), ROBERTA),
    "ModernBERT": ("ModernBertForMaskedLM", MODERN, lambda: build_bpe(False, BERT), BERT),
    "DeBERTa-v3": ("DebertaV2ForMaskedLM", DEBERTA, lambda: build_unigram(BERT), BERT),
}
"""Those that transformers' module holds: class, fields, tokenizer and its special entries."""
KINDS = FOREIGN | {
    "BERT": ("BertForMaskedLM", LONG, build_word_piece, BERT),
    "BERT with Unigram, as multilingual E5": ("BertModel", LONG, build_unigram, ROBERTA),
    "ELECTRA": ("ElectraForPreTraining", LONG | {"embedding_size": 16}, build_word_piece, BERT),
}


def write_checkpoint(folder: Path, what: str = "MiniLM, a bare trunk", **changed: Any) -> Path:
    """Write a transformers folder with weights far from their usual start, and a vocabulary."""
    name, fields, _ = CHECKPOINTS[what]
    write_vocabulary(folder, SIZE)
    return _save(folder, name, {"vocab_size": SIZE} | fields | changed, noise=0.1)


def write_kind(folder: Path, kind: str, **changed: Any) -> Path:
    """Write the folder of a published encoder of this kind, with a tokenizer as it has."""
    name, fields, build, specials = KINDS[kind]
    tokenizer = build()
    save_tokenizer(tokenizer, folder, specials)
    return _save(folder, name, {"vocab_size": tokenizer.get_vocab_size()} | fields | changed)


def _save(folder: Path, name: str, fields: dict[str, Any], noise: float = 0.0) -> Path:
    model_class = getattr(transformers, name)
    torch.manual_seed(7)
    model = model_class(model_class.config_class(**fields))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * noise)
    model.save_pretrained(folder)
    return folder
