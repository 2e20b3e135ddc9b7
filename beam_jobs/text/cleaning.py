"""Cleans a published text to one line, and mends mojibake: "donâ€™t" for "don’t"."""

import html
import re
import unicodedata
from functools import cache

# No repetition may run over the text from each of many places: it is possessive and bounded, or
# begins where nothing like it stands before. Else 100,000 backslashes take a minute.
MARKERS = re.compile(r"\[\[\s*+(?:VIDEOID|ASIN|IMG|IMAGE)[^\]]{0,1000}+\]\]", re.IGNORECASE)
ASIN_TITLE = re.compile(r"\[\[\s*+ASIN:\w++\s++([^\]]{0,1000}+)\]\]", re.IGNORECASE)
TAGS = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>")
SPACES = re.compile("  +")
ESCAPED = re.compile(r"\\(?<!\\\\)\\*+(['\"/])")  # once too often, as in Customer Reviews
# Controls and invisible characters: soft hyphens, marks of direction, byte order marks, surrogates.
CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufff9-\ufffc"
    "\ud800-\udfff]"
)
# "obsessed!It", "me.The", "great!I love": a stop between two lower-case letters and a capital. It
# looks behind once both are found, which keeps the engine's fast search for the stop.
RUN_ON = re.compile(
    r"[.!?](?=[A-Z](?<=[a-z][a-z].[A-Z]))(?=[A-Z][a-z']|I\b)(?<!www.)(?!(?:Com|Net|Org|Html)\b)"
)

MAX_MARKS = 30  # combining marks in a run: the Stream-Safe Text Format of Unicode (UAX #15)


def clean_text(text: str, repair_run_ons: bool = True) -> str:
    """Return one line of NFC text without markup, markers, control characters, repeated spaces."""
    if "&" in text:
        text = unescape_html(text)
    if "[" in text and "[[" in text:  # one character is found at five times the speed of two
        text = MARKERS.sub(" ", ASIN_TITLE.sub(r"\1", text))
    if "<" in text:
        text = TAGS.sub(" ", text)
    if "\\" in text:
        text = ESCAPED.sub(r"\1", text)
    plain = text.isprintable()  # then the only white space is " "
    if not plain:
        text = CONTROLS.sub("", text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", limit_marks(text))
    if repair_run_ons and RUN_ON.search(text):
        text = RUN_ON.sub(r"\g<0> ", text)
    if not plain:
        return " ".join(text.split())
    if "  " in text:
        text = SPACES.sub(" ", text)
    return text.strip(" ")


def limit_marks(text: str) -> str:
    """Cut runs of combining marks to MAX_MARKS: normalization sorts a run in quadratic time. A
    longer run has a mark among every MAX_MARKS-th characters, so few texts are searched.
    """
    sample = text[::MAX_MARKS]
    if sample.isascii():
        return text
    mark, long_run = compile_marks()
    return long_run.sub(r"\1", text) if mark.search(sample) else text


@cache
def compile_marks() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of one mark (what decomposes into marks) and of a run that is too long."""
    marks = "".join(
        chr(code)
        for code in range(0x300, 0x1F000)
        if unicodedata.combining(unicodedata.normalize("NFD", chr(code))[0])
    )
    return re.compile(f"[{marks}]"), re.compile(f"([{marks}]{{{MAX_MARKS}}})[{marks}]++")


def unescape_html(text: str) -> str:
    """Replace HTML entities, also those escaped twice (`&amp;#34;`), as in the 2018 release."""
    try:
        once = html.unescape(text)
        return html.unescape(once) if "&" in once else once
    except ValueError:  # a character's number of thousands of digits
        return text


def repair_mojibake(text: str) -> str:
    """Return a text with its mojibake mended where it decodes as UTF-8 without a rest."""
    if text.isascii():
        return text
    from ftfy import fix_encoding  # which few need: a tenth of a second

    return fix_encoding(text, unescape_html=False, replace_lossy_sequences=False)
