"""Which reviews are in another language than the ones asked for (py3langid, a maintained langid.py).

It costs more than all the rest of a review's way, 80 µs for 200 characters, so it is off unless asked for, and looks at
the beginning of a text only. Texts of fewer than 5 words are kept: it cannot tell "muy bien" from "so fine".
"""

import numpy as np

LOOKED_AT = 200  # characters
LEAST_WORDS = 5


def foreign(texts: list[str], wanted: tuple[str, ...]) -> np.ndarray:
    """For each text, whether it is in none of the languages wanted (ISO 639-1)."""
    import py3langid

    return np.array(
        [t.count(" ") + 1 >= LEAST_WORDS and py3langid.classify(t[:LOOKED_AT])[0] not in wanted for t in texts]
    )


def known() -> set[str]:
    import py3langid

    return {language for language, _ in py3langid.rank("language")}
