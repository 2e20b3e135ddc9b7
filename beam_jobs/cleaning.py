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
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b-\u200f\u2060\ufeff\ufff9-\ufffc\ud800-\udfff]")
RUN_ON = re.compile(r"(?<=[a-z]{2}[.!?])(?=[A-Z][a-z'])|(?<=[a-z]{2}[!?])(?=I\b)")


@dataclass(frozen=True)
class Cleaning:
    """What a user may turn off or on."""

    repair_run_ons: bool = True
    mask_personal_data: bool = True


def clean(text: str, cleaning: Cleaning = Cleaning()) -> str:
    """One line of NFC text without markup, markers, control characters or repeated spaces."""
    if "&" in text:
        text = unescape(text)
    if "[[" in text:
        text = MARKERS.sub(" ", ASIN_TITLE.sub(r"\1", text))
    if "<" in text:
        text = TAGS.sub(" ", COMMENTS.sub(" ", text))
    if not text.isprintable():
        text = CONTROLS.sub("", text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if cleaning.repair_run_ons:
        text = RUN_ON.sub(" ", text)
    if "  " in text or text[:1] == " " or text[-1:] == " " or not text.isprintable():
        text = " ".join(text.split())
    return text


def unescape(text: str) -> str:
    """HTML entities, also those escaped twice (`&amp;#34;`), as in the 2018 release."""
    once = html.unescape(text)
    return html.unescape(once) if "&" in once else once
