"""The phrases for which reviews are withheld, in words."""

import numpy as np

from amazon_electra.beam_jobs.deduplication import held_out
from amazon_electra.beam_jobs.deduplication.phrases import count_phrases, describe_withheld
from amazon_electra.beam_jobs.text.word_runs import split_words
from tests.beam_jobs.deduplication.word_texts import draw_texts

PHRASE = "bought here, because the SHOP is nearer than all others – são João"
WORDS = "bought here because the shop is nearer than all others são joão"
NONE = np.empty(0, np.uint64)


def test_the_n_grams_of_several_texts_are_joined_to_phrases():
    texts = [f"{text} {PHRASE}." for text in draw_texts(20, 1, 20, 30)]
    units = [count_phrases(texts[:15], NONE), count_phrases(texts[15:], NONE)]
    line = describe_withheld(20, 100, units)
    assert "20 of 100 " in line
    assert f'"{WORDS}"' in line
    assert line.count('"') == 2
    assert describe_withheld(5, 100, units) == ""


def test_common_n_grams_are_not_named():
    texts = [f"{text} {PHRASE}." for text in draw_texts(20, 1, 20, 30)]
    common, _, _ = held_out.list_ngrams(split_words([PHRASE]))
    assert not [p for p in count_phrases(texts, common) if p in WORDS]
