"""Finds reviews in other languages than the wanted ones (py3langid, a maintained langid.py).

A classification costs 80 µs for 200 characters, more than everything else done to a review, so the
filter is off by default and looks at the beginning of a text only. Texts of fewer than 5 words are
kept, because it cannot tell "muy bien" from "so fine"; every character of Chinese, Japanese and
Thai is a word.
"""

import numpy as np

from beam_jobs.text.word_runs import count_words

MAX_CHARACTERS = 200  # characters
MIN_WORDS = 5


def find_foreign_texts(texts: list[str], wanted: tuple[str, ...]) -> np.ndarray:
    """Return for each text whether it is in none of the wanted languages (ISO 639-1)."""
    import py3langid

    return np.array(
        [
            count_words(t) >= MIN_WORDS and py3langid.classify(t[:MAX_CHARACTERS])[0] not in wanted
            for t in texts
        ]
    )


def list_languages() -> set[str]:
    import py3langid

    return {language for language, _ in py3langid.rank("language")}
