"""What shards and encoders have to agree about, beside a tokenizer's entries."""

from tokenizers import Tokenizer


def find_specials(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids that the tokenizer puts before and after a text, [CLS] and [SEP] or what they
    are called here. ValueError unless it is one of each.
    """
    text, whole = (tokenizer.encode("a", add_special_tokens=added).ids for added in (False, True))
    if whole[1:-1] != text or len(whole) != len(text) + 2:
        raise ValueError(
            "it does not put one special token before a text and one after it, as encoders need; "
            "its post_processor should"
        )
    return whole[0], whole[-1]


def count_rows(tokenizer: Tokenizer) -> int:
    """Return how many rows a table of vectors needs: one for each id up to the last."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1
