"""Reads the tokenizer of a published encoder."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from model.published.architecture import Fail
from model.published.vocabulary import NEEDED, read_entries, read_tokenizer_entries
from model.wordpiece.tokenizer import build_tokenizer_of

BERT_PARTS = {
    "model": (models.WordPiece, "WordPiece"),
    "normalizer": (normalizers.BertNormalizer, "BertNormalizer"),
    "pre_tokenizer": (pre_tokenizers.BertPreTokenizer, "BertPreTokenizer"),
}
"""What the ids of words can be remembered for (beam_jobs/packing/tokenization.py)."""


def load_published_tokenizer(folder: Path, fail: Fail) -> Tokenizer:
    """Return the folder's tokenizer without truncation and padding.

    An old folder has only a vocab.txt: then it is BERT's, which folds case unless
    tokenizer_config.json says otherwise. Raise UserError unless it is one of BERT's.
    """
    file = folder / "tokenizer.json"
    entries = read_tokenizer_entries(file, fail) if file.is_file() else read_entries(folder, fail)
    missing = [token for token in NEEDED if token not in entries]
    if missing:
        raise fail(f"its vocabulary lacks {', '.join(missing)}; shards need BERT's tokenizer")
    if not file.is_file():
        told = _read_tokenizer_config(folder, fail)
        return build_tokenizer_of(
            entries, bool(told.get("do_lower_case", True)), told.get("strip_accents")
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises no class of its own
        raise fail(f"tokenizer.json is damaged ({error}); copy it again") from None
    for part, (kind, name) in BERT_PARTS.items():
        if not isinstance(getattr(tokenizer, part), kind):
            other = type(getattr(tokenizer, part)).__name__
            raise fail(f"the {part} of its tokenizer is {other}; shards need BERT's, {name}")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _read_tokenizer_config(folder: Path, fail: Fail) -> dict[str, Any]:
    file = folder / "tokenizer_config.json"
    try:
        told: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    except ValueError as error:
        raise fail(f"tokenizer_config.json is damaged ({error}); copy it again") from None
    return told
