"""The rules on strings answer as NLTK's Punkt does, for any words and any parameters."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.text.punkt import PunktParameters, PunktSentenceTokenizer
from beam_jobs.text.punkt_rules import PunktRules
from beam_jobs.text.sentences import decode_punkt, encode_punkt, read_punkt_tab
from tests.beam_jobs.dumps import shared_data
from tests.beam_jobs.text.test_sentences import TRAINED, real_reviews

PIECES = [
    *("a", "b", "J.", "Mr.", "mr", "e.g.", "U.S.", "etc", "day", "days-etc.", "x-mr.", "can't"),
    *("it", "It", "IT", "I", "You'll", "(it)", "well,", "é", "É.", "ñ", "ß.", "字", "字."),
    *("5", "5.", "1,000.", "-3.", "10-5.", "##", ".", "..", "...", "....", "!", "?", "!!"),
    *(")", "(", '"', "'", "*", "-", "--", ",", ";", ":", "’", "”"),
]
CONTEXTS = st.lists(st.sampled_from([*PIECES, " ", " ", " "]), min_size=1, max_size=7).map("".join)
KINDS = ["a", "b", "j", "mr", "it", "i", "day", "##number##", "é", "字", "e.g", "etc", "..", "."]


@st.composite
def parameters(draw) -> PunktParameters:
    """Draw parameters that say something of the words of the contexts."""
    drawn = PunktParameters()
    drawn.abbrev_types = draw(st.sets(st.sampled_from(KINDS)))
    pair = st.tuples(st.sampled_from(KINDS), st.sampled_from([*KINDS, "it.", "5."]))
    drawn.collocations = draw(st.sets(pair, max_size=5))
    drawn.sent_starters = draw(st.sets(st.sampled_from(KINDS)))
    bits = st.sampled_from(range(0, 128, 2))
    drawn.ortho_context.update(draw(st.dictionaries(st.sampled_from(KINDS), bits)))
    return drawn


@settings(max_examples=600, deadline=None)
@given(parameters(), st.lists(CONTEXTS, min_size=1, max_size=8))
def test_any_words_with_any_parameters(drawn, contexts):
    theirs, ours = PunktSentenceTokenizer(drawn), PunktRules(drawn)
    for context in contexts:
        assert ours.has_break(context) == theirs.text_contains_sentbreak(context), context


@settings(max_examples=300, deadline=None)
@given(parameters(), CONTEXTS, st.lists(st.sampled_from(PIECES), min_size=1, max_size=6))
def test_what_breaks_alone_breaks_before_every_word(drawn, context, following):
    ours, theirs = PunktRules(drawn), PunktSentenceTokenizer(drawn)
    if ours.breaks_alone(context):
        for word in following:
            assert theirs.text_contains_sentbreak(f"{context} {word}")


@pytest.mark.parametrize("given_tab", [False, True])
def test_every_context_of_real_reviews(given_tab):
    data = shared_data()
    folder = str(data / "nltk_data" / "tokenizers" / "punkt_tab" / "english")
    known = read_punkt_tab(folder) if given_tab else decode_punkt(encode_punkt(TRAINED))
    theirs, ours = PunktSentenceTokenizer(known), PunktRules(known)
    contexts = {
        f"{word} {following}"
        for text in real_reviews(data)
        for word, following in zip(text.split(), text.split()[1:], strict=False)
        if "." in word or "!" in word or "?" in word
    }
    chosen = sorted(contexts)[::10]
    assert len(chosen) > 1000
    different = [c for c in chosen if ours.has_break(c) != theirs.text_contains_sentbreak(c)]
    assert different == []
