"""From the text as published to one clean line: what is removed, repaired and masked, and in which order.

Pure functions of one text. Every step first asks, with a test that costs nanoseconds, whether the text needs it at
all: of 76,000 real reviews two thirds contain neither markup nor control characters nor double spaces.
"""

import html
import re
import unicodedata
from dataclasses import dataclass

MARKERS = re.compile(r"\[\[\s*(?:VIDEOID|ASIN|IMG|IMAGE)[^\]]*\]\]", re.IGNORECASE)
ASIN_TITLE = re.compile(r"\[\[\s*ASIN:\w+\s+([^\]]*)\]\]", re.IGNORECASE)
COMMENTS = re.compile(r"<!--.*?-->|<(script|style)\b[^>]*>.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
TAGS = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>")
SPACES = re.compile("  +")
ESCAPED = re.compile(r"\\\\*(['\"/])")  # quotes escaped once too often, as in Customer Reviews
CONTROLS = re.compile(  # and what is not seen: soft hyphens, marks of direction, byte order marks, surrogates
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufff9-\ufffc"
    "\ud800-\udfff]"
)
# "obsessed!It", "me.The", "great!I love": a stop between two lower-case letters and a capital. To look behind only when
# the stop and the capital have been found keeps the engine's fast search for the stop: 1.8 µs a review instead of 31.
RUN_ON = re.compile(r"[.!?](?=[A-Z](?<=[a-z][a-z].[A-Z]))(?=[A-Z][a-z']|I\b)(?<!www.)(?!(?:Com|Net|Org|Html)\b)")


@dataclass(frozen=True)
class Cleaning:
    """What a user may turn off or on."""

    repair_run_ons: bool = True  # "obsessed!It", in 30% of the 2014 Cell_Phones


def clean(text: str, cleaning: Cleaning = Cleaning()) -> str:
    """One line of NFC text without markup, markers, control characters or repeated spaces."""
    if "&" in text:
        text = unescape(text)
    if "[" in text and "[[" in text:  # one character is found at five times the speed of two
        text = MARKERS.sub(" ", ASIN_TITLE.sub(r"\1", text))
    if "<" in text:
        text = TAGS.sub(" ", COMMENTS.sub(" ", text))
    if "\\" in text:
        text = ESCAPED.sub(r"\1", text)
    plain = text.isprintable()  # then the only white space is " "
    if not plain:
        text = CONTROLS.sub("", text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if cleaning.repair_run_ons and RUN_ON.search(text):
        text = RUN_ON.sub(r"\g<0> ", text)
    if not plain:
        return " ".join(text.split())
    if "  " in text:
        text = SPACES.sub(" ", text)
    return text.strip(" ")


def unescape(text: str) -> str:
    """HTML entities, also those escaped twice (`&amp;#34;`), as in the 2018 release."""
    once = html.unescape(text)
    return html.unescape(once) if "&" in once else once
