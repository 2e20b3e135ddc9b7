"""How a model's tokenizer cuts long texts."""

from collections.abc import Sequence
from typing import Any


def load_tokenizer(content: bytes, max_length: int) -> Any:
    """Return the tokenizer of a tokenizer.json that cuts texts to a length, in tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(content.decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer


def count_cut_texts(tokenizer: Any, texts: Sequence[Any]) -> int:
    """Return how many texts, or pairs of texts, a tokenizer cuts to the length it is set to."""
    return sum(bool(one.overflowing) for one in tokenizer.encode_batch_fast(list(texts)))
