"""No text up to the length that is cleaned takes long, however it is made: 0.13 CPU seconds at most
on the machine where they were collected, in step with the length.
"""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nltk.tokenize.punkt import PunktParameters

from amazon_electra.beam_jobs.text.cleaning import clean_text
from amazon_electra.beam_jobs.text.personal_data import mask_personal_data
from amazon_electra.beam_jobs.text.sentences import SentenceSplitter
from tests.beam_jobs.cpu_time import is_linear

CHARACTERS = 200_000  # MAX_RAW_EXPANSION × the default of --max-characters
SPLITTER = SentenceSplitter(PunktParameters())


def clean_mask_split(text: str) -> None:
    """Do to a text what the two passes of the corpus job do."""
    SPLITTER.split(pa.array([mask_personal_data(clean_text(text))[0]]))


def fill(pattern: str, start: str = "", end: str = "") -> tuple[str, str]:
    """Return a text of the full length, and one of half of it."""
    room = CHARACTERS - len(start) - len(end)
    whole, half = (start + pattern * (n // len(pattern)) + end for n in (room, room // 2))
    return whole, half


BAD_TEXTS = {
    "marks out of order": fill("\u0f71\u0f72"),
    "marks after a letter": fill("\u0316\u0301", "e"),
    "Tibetan vowels of two marks": fill("\u0f73"),
    "entities": fill("&"),
    "entities without end": fill("&amp"),
    "entities escaped twice": fill("&amp;amp;"),
    "a number without end": fill("9", "&#"),
    "numbers": fill("&#x41;"),
    "markers": fill("[[VIDEOID:"),
    "markers with blanks": fill("[[ "),
    "markers of titles": fill("[[ASIN:B0 "),
    "titles that end at last": fill("[[ASIN:a ", end="] x"),
    "tags that end at last": fill("<a ", end="> x"),
    "scripts that end at last": fill("<script ", end="> x"),
    "brackets": fill("["),
    "comments": fill("<!--"),
    "comments that end": fill("<!---->"),
    "scripts": fill("<script "),
    "scripts that end": fill("<script></script "),
    "styles": fill("<style>"),
    "tags": fill("<a "),
    "tags with blanks": fill(" ", "<a"),
    "less than": fill("<"),
    "backslashes": fill("\\"),
    "backslashes and quotes": fill("\\\\\\'"),
    "spaces": fill("  "),
    "controls": fill("\x00 \x01"),
    "run-ons": fill("so.It"),
    "stops": fill("."),
    "stops and capitals": fill(".A"),
    "candidates of sentences": fill("a. "),
    "closing marks in a row": fill(")", "a. "),
    "closing marks after stops": fill("a. )"),
    "closing marks": fill('.) " '),
    "quotes": fill('"'),
    "dots and spaces": fill(".  "),
    "ellipses": fill("... "),
    "one word": fill("a"),
    "one word and a stop": fill("a", end=". b"),
    "initials": fill("A. B. "),
    "numbers and stops": fill("1. "),
    "at signs": fill("@"),
    "addresses": fill("a@b"),
    "addresses without end": fill("a.", end="@"),
    "addresses of dots": fill(".a", "a@a"),
    "addresses of dashes": fill("-", "a@"),
    "addresses of underscores": fill("_", end="@a"),
    "digits": fill("5"),
    "digits and dashes": fill("555-"),
    "digits and spaces": fill("12 "),
    "digits and stops": fill("555."),
    "plus signs": fill("+1"),
    "plus signs and groups": fill("+1 (23) "),
    "brackets and digits": fill("(555) "),
    "calls": fill("call 555 "),
    "calls without a number": fill("call is at me "),
    "phones": fill("phone:::"),
}


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_bad_texts_take_no_longer_than_their_length(text):
    assert is_linear(clean_mask_split, *text)


PIECES = st.one_of(
    st.sampled_from([text[:8] for text, _ in BAD_TEXTS.values()]),
    st.text(alphabet="<>&#;[]\\'\".!?@+()-_/ aA.5\u0301\u0f71\u0f72\u2013\uff20\n", max_size=6),
)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(start=PIECES, pattern=PIECES.filter(bool), end=PIECES)
def test_repeated_texts_take_no_longer_than_their_length(start, pattern, end):
    assert is_linear(clean_mask_split, *fill(pattern, start, end))
