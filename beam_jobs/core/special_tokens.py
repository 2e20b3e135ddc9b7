"""What shards and encoders have to agree about, beside a tokenizer's entries."""

from tokenizers import Tokenizer

SHARDS_VERSION = 6  # to be raised when the same corpus gives other shards


def find_specials(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return the ids that the tokenizer puts right before and after a text, [CLS] and [SEP] or what
    they are called here. ValueError unless it is one of each.
    """
    text, encoding = (tokenizer.encode("a", add_special_tokens=added) for added in (False, True))
    whole, last = encoding.ids, -1 - len(text.ids)
    added = tokenizer.get_added_tokens_decoder().values()
    specials = {one.content for one in added if one.special}
    has_both = len(whole) >= len(text.ids) + 2 and whole[last:-1] == text.ids
    if not has_both or specials & {*encoding.tokens[1:last]}:
        raise ValueError("its post_processor puts no special token before a text and one after it")
    return whole[0], whole[-1]


def count_rows(tokenizer: Tokenizer) -> int:
    """Return how many rows a table of vectors needs: one for each id up to the last."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1
