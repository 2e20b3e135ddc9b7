"""Mends mojibake, text whose UTF-8 somebody read in another encoding: "donâ€™t" for "don’t".

ftfy changes a text only where its signs are improbable and decode as UTF-8 without a rest. It takes
30 µs for a text that is not ASCII.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftfy import TextFixerConfig

CONTEXT = 12  # characters of an example around what is mended


@cache
def _make_config() -> "TextFixerConfig":
    from ftfy import TextFixerConfig  # which few need: a tenth of a second

    return TextFixerConfig(unescape_html=False, replace_lossy_sequences=False)


def repair_mojibake(text: str) -> str:
    """Return a text with its mojibake mended where that is certain."""
    if text.isascii():
        return text
    from ftfy import fix_encoding

    return fix_encoding(text, _make_config())


def show_mojibake(text: str) -> str:
    """Return the first word or so that would be mended; nothing without any."""
    mended = repair_mojibake(text)
    if mended == text:
        return ""
    first = next(
        (i for i, (one, other) in enumerate(zip(text, mended, strict=False)) if one != other), 0
    )
    start = text.rfind(" ", 0, first) + 1
    end = text.find(" ", first)
    return text[max(start, first - CONTEXT) : min(end if end > 0 else len(text), first + CONTEXT)]
