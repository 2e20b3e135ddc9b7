"""Prepares texts of reviews as a classifier reads them, the same for a corpus and for scores."""

import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import Any

from amazon_electra.beam_jobs.config import TextConfig
from amazon_electra.beam_jobs.text.cleaning import clean_text, repair_mojibake
from amazon_electra.beam_jobs.text.personal_data import mask_personal_data


@dataclass(frozen=True)
class TextPreparer:
    """Cleans, masks and joins texts and titles, and counts in `notes` what it has changed."""

    config: TextConfig
    notes: Counter[str]

    def clean(self, text: str) -> str:
        """Return one clean line; "" where nothing is left."""
        return clean_text(self.repair(text), self.config.repair_run_ons)

    def repair(self, text: str) -> str:
        """Return a text with its mojibake mended, if that is wanted."""
        if not self.config.repair_mojibake:
            return text
        mended = repair_mojibake(text)
        self.notes["mojibake_repaired"] += mended != text
        return mended

    def make_title(self, title: Any, text: str) -> str:
        """Return a title as a sentence; "" without one, or if the clean `text` begins with it."""
        if not self.config.title or not isinstance(title, str) or not title:
            return ""
        title = self.repair(title)
        if len(title) > self.config.max_characters:
            return ""
        title = clean_text(title, self.config.repair_run_ons)
        begin = title.rstrip("….")
        is_repeated = text[: len(begin)].casefold() == begin.casefold()
        if not begin or (is_repeated and not text[len(begin) : len(begin) + 1].isalnum()):
            return ""
        return title if unicodedata.category(title[-1]).startswith("P") else f"{title}."

    def mask(self, texts: list[str]) -> None:
        """Mask the personal data in texts, in place, if that is wanted."""
        for i, text in enumerate(texts) if self.config.mask_personal_data else ():
            texts[i], emails, phones = mask_personal_data(text)
            if emails or phones:
                self.notes["emails_masked"] += emails
                self.notes["phones_masked"] += phones


def join_title(title: str, text: str) -> str:
    """Return what a classifier reads: the sentence that `make_title` returned, and the text."""
    return f"{title} {text}" if title else text
