"""Tiny checkpoints of the kinds of encoders that people start from, with a tokenizer as each has:
transformers' own classes, random weights, save_pretrained.
"""

from pathlib import Path

import torch
import transformers

from tests.model.encoders import checkpoints
from tests.tokenizer_kinds import BERT, ROBERTA, build_bpe, build_unigram, build_word_piece
from tests.tokenizer_kinds import write_published as save_tokenizer

LONG = {"max_position_embeddings": 80, "initializer_range": 0.2}
SHAPE = checkpoints.SHAPE | LONG | {"num_hidden_layers": 2}
FROM_PADDING = SHAPE | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
DEBERTA = SHAPE | {
    "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
    "type_vocab_size": 0, "pad_token_id": 0,
}  # fmt: skip
MODERN = SHAPE | {
    "num_hidden_layers": 3, "local_attention": 16, "global_attn_every_n_layers": 3,
    "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
DISTILBERT = checkpoints.DISTILBERT | LONG | {"n_layers": 2}
KINDS = {
    "BERT": ("BertForMaskedLM", SHAPE, build_word_piece, BERT),
    "BERT with Unigram, as multilingual E5": ("BertModel", SHAPE, build_unigram, ROBERTA),
    "RoBERTa": ("RobertaForMaskedLM", FROM_PADDING, build_bpe, ROBERTA),
    "XLM-R": ("XLMRobertaForMaskedLM", FROM_PADDING, build_unigram, ROBERTA),
    "MPNet, a bare trunk": ("MPNetModel", FROM_PADDING, lambda: build_word_piece(ROBERTA), ROBERTA),
    "ModernBERT": ("ModernBertForMaskedLM", MODERN, lambda: build_bpe(False, BERT), BERT),
    "DeBERTa-v3": ("DebertaV2ForMaskedLM", DEBERTA, lambda: build_unigram(BERT), BERT),
    "DistilBERT": ("DistilBertForMaskedLM", DISTILBERT, build_word_piece, BERT),
    "ELECTRA": ("ElectraForPreTraining", SHAPE | {"embedding_size": 16}, build_word_piece, BERT),
}
OURS = ("BERT", "BERT with Unigram, as multilingual E5", "DistilBERT", "ELECTRA")


def write_kind(folder: Path, kind: str, **changed: object) -> Path:
    """Write the folder of a published encoder of this kind."""
    name, fields, build, specials = KINDS[kind]
    tokenizer = build()
    save_tokenizer(tokenizer, folder, specials)
    model_class = getattr(transformers, name)
    torch.manual_seed(7)
    size = {"vocab_size": tokenizer.get_vocab_size()}
    model_class(model_class.config_class(**size | fields | changed)).save_pretrained(folder)
    return folder
