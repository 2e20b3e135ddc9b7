"""The phrases for which reviews are withheld, as words: what their comparison has of them is hashes
(held_out.py).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from amazon_electra.beam_jobs.deduplication.common_ngrams import WHOLE
from amazon_electra.beam_jobs.deduplication.held_out import RUN_WORDS
from amazon_electra.beam_jobs.text.word_runs import list_words, split_words

MIN_SHARE = 0.05
"""Of the reviews to train on: when so many are withheld, it is reported with the phrases."""
MAX_TEXTS = 256  # withheld reviews of a unit that are looked at
MAX_COUNTED = 100  # N-grams of a unit that are kept
SHOWN, MAX_SHOWN_WORDS = 3, 16
SAME_SHARE = 0.8  # of a phrase's reviews have the n-gram by which it is longer


def count_phrases(texts: Sequence[str], common: np.ndarray) -> dict[str, int]:
    """Return of the most frequent n-grams of several texts how many texts have each; those whose
    hashes are in `common` did nothing.
    """
    found: Counter[str] = Counter()
    for text in texts:
        runs, _ = split_words([text]).hash_runs(RUN_WORDS)
        words = list_words(text)
        own = np.flatnonzero(~np.isin(runs & ~WHOLE, common)).tolist()
        found.update({" ".join(words[first : first + RUN_WORDS]) for first in own})
    ordered = sorted(found, key=lambda phrase: (-found[phrase], phrase))
    return {phrase: found[phrase] for phrase in ordered[:MAX_COUNTED] if found[phrase] > 1}


def describe_withheld(withheld: int, of: int, counts: Iterable[Mapping[str, int]]) -> str:
    """Return a line about so many withheld reviews of those to train on, with the phrases that they
    share most often; nothing where they are few.
    """
    if withheld <= MIN_SHARE * of:
        return ""
    phrases = ", ".join(f'"{phrase}"' for phrase in _join_ngrams(counts))
    return (
        f"{withheld:,} of {of:,} reviews to train on ({withheld / of:.0%}) are withheld: they "
        "repeat dev or test reviews or evaluation texts, or nearly so"
        + (f"; phrases that they share: {phrases}" if phrases else "")
    )


def _join_ngrams(counts: Iterable[Mapping[str, int]]) -> list[str]:
    """Return the most frequent phrases; n-grams that follow one another are one."""
    added: Counter[tuple[str, ...]] = Counter()
    for each in counts:
        for phrase, n in each.items():
            added[tuple(phrase.split(" "))] += n
    found: list[str] = []
    while added and len(found) < SHOWN:
        best = min(added, key=lambda words: (-added[words], words))
        least, words = SAME_SHARE * added.pop(best), list(best)
        is_longer = True
        while is_longer and len(words) < MAX_SHOWN_WORDS:
            is_longer = False
            for ngram in sorted(added):
                if added[ngram] < least:
                    continue
                if list(ngram[:-1]) == words[1 - RUN_WORDS :]:
                    words.append(ngram[-1])
                elif list(ngram[1:]) == words[: RUN_WORDS - 1]:
                    words.insert(0, ngram[0])
                else:
                    continue
                del added[ngram]
                is_longer = True
                break
        seen = set(words)  # of longer phrases, what is left of them is no other phrase
        for ngram in [ngram for ngram in added if len(seen & {*ngram}) > RUN_WORDS // 2]:
            del added[ngram]
        found.append(" ".join(words))
    return found
