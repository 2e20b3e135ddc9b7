"""No text up to the length that is cleaned takes longer than in step with its length, however it is
made: a quadratic one takes minutes, and the test's time ends.
"""

import pyarrow as pa
import pytest
from nltk.tokenize.punkt import PunktParameters

from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.personal_data import mask_personal_data
from amazon_electra.beam_jobs.text.sentences import SentenceSplitter

CHARACTERS = 200_000  # MAX_RAW_EXPANSION × the default of --max-characters
SPLITTER = SentenceSplitter(PunktParameters())
REPEATED = (
    *("\u0f71\u0f72", "\u0f73", "&", "&amp", "&amp;amp;", "&#x41;", "[[VIDEOID:", "[[ "),
    *("[[ASIN:B0 ", "[", "<a ", "<", "\\", "\\\\\\'", "  ", "\x00 \x01", "so.It", "."),
    *(".A", "a. ", "a. )"),
    *('.) " ', '"', ".  ", "... ", "a", "A. B. ", "1. ", "@", "a@b", "5", "555-", "12 "),
    *("555.", "+1", "+1 (23) ", "(555) ", "call 555 ", "call is at me ", "phone:::"),
)
FRAMED = (  # what is repeated, between a beginning and an end
    *(("\u0316\u0301", "e", ""), ("9", "&#", ""), ("[[ASIN:a ", "", "] x")),
    *(("<a ", "", "> x"), (" ", "<a", ""), (")", "a. ", "")),
    *(("a", "", ". b"), ("a.", "", "@"), (".a", "a@a", ""), ("-", "a@", "")),
    ("_", "", "@a"),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("pattern", "start", "end"), [*((p, "", "") for p in REPEATED), *FRAMED])
def test_bad_texts_take_no_longer_than_their_length(pattern, start, end):
    text = start + pattern * ((CHARACTERS - len(start + end)) // len(pattern)) + end
    SPLITTER.split(pa.array([mask_personal_data(clean_text(text))[0]]))
