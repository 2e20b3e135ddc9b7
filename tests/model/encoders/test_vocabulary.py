"""The vocabulary of a published encoder, and vectors for another one."""

from amazon_electra.model.encoders.vocabulary import map_vocabulary, split_into_pieces
from tests.model.synthetic_shards import SPECIAL


def test_words_are_cut_as_wordpiece_cuts_them():
    old = [*SPECIAL, "un", "##happi", "##ness", "happi", "##h", "u"]
    ids = {token: i for i, token in enumerate(old)}
    assert split_into_pieces("unhappiness", ids) == [5, 6, 7]
    assert split_into_pieces("##happiness", ids) == [6, 7]
    assert split_into_pieces("xyz", ids) == []
    assert map_vocabulary(old, ["[MASK]", "happiness", "xyz"]) == [[4], [8, 7], [1]]
