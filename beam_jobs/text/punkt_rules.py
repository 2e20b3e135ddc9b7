"""Decides like NLTK's Punkt whether words end a sentence, without making a token of each.

The words are cut by NLTK's own expression; the rules are those of nltk/tokenize/punkt.py
(_first_pass_annotation, _second_pass_annotation, _ortho_heuristic) on strings. NLTK makes an object
with cached regular expressions of each word and passes it through two generators, which takes
several times as long.
"""

import re
from functools import lru_cache

from beam_jobs.text.punkt import (
    ORTHO_BEG_LC,
    ORTHO_LC,
    ORTHO_MID_UC,
    ORTHO_UC,
    PunktLanguageVars,
    PunktParameters,
    PunktSentenceTokenizer,
    PunktToken,
)

SENTENCE_ENDS = frozenset(PunktLanguageVars.sent_end_chars)
PUNCTUATION = PunktSentenceTokenizer.PUNCTUATION
ELLIPSIS = re.compile(r"\.\.+$")
INITIAL = re.compile(r"[^\W\d]\.$")
NUMBER = "##number##"
WORDS = re.compile(PunktLanguageVars()._word_tokenizer_re().pattern, re.VERBOSE)
"""NLTK's own expression for Python's engine, which takes a fifth of the time of NLTK's `regex`."""


class LanguageVars(PunktLanguageVars):
    """NLTK's, with a faster `word_tokenize`."""

    def word_tokenize(self, s: str) -> list[str]:
        # the engines agree on " " as white space, and other is not printable
        return WORDS.findall(s) if s.isprintable() else super().word_tokenize(s)


@lru_cache(1 << 15)
def normalize_token(tok: str) -> str:
    """Return the token in lower case, numbers as ##number##."""
    return tok.lower() if tok.isalpha() else PunktToken._get_type(PunktToken, tok)


class PunktRules:
    """What Punkt with these parameters answers; equal to PunktSentenceTokenizer's answers."""

    def __init__(self, parameters: PunktParameters) -> None:
        self._abbreviations = parameters.abbrev_types
        self._collocations = parameters.collocations
        self._first_of_collocation = {first for first, _ in parameters.collocations}
        self._starters = parameters.sent_starters
        self._orthography = parameters.ortho_context
        self._cut_words = LanguageVars().word_tokenize

    def has_break(self, line: str) -> bool:
        """Return whether a sentence ends before the last word: `text_contains_sentbreak`."""
        words = self._cut_words(line)
        return any(map(self._is_break, words, words[1:]))

    def breaks_alone(self, line: str) -> bool:
        """Return whether a sentence surely ends within `line` or after it, whatever follows."""
        words = self._cut_words(line)
        if any(map(self._is_break, words, words[1:])):
            return True
        return bool(words) and self._ends_before_all(words[-1])

    def is_plain_end(self, word: str) -> bool:
        """Return whether `word`, letters in lower case, ends every sentence with the stop after it.

        A sentence goes on only after an abbreviation or the first word of a collocation.
        """
        return word not in self._abbreviations and word not in self._first_of_collocation

    def _ends_before_all(self, word: str) -> bool:
        if not self._is_end(word):
            return False
        if word[-1] != ".":
            return True
        kind = strip_period(normalize_token(word))
        return not (kind in self._first_of_collocation or INITIAL.match(word) or kind == NUMBER)

    def _is_end(self, word: str) -> bool:
        """Return what a word says by itself: Punkt's first pass."""
        if word in SENTENCE_ENDS:
            return True
        if word[-1] != "." or word[-2:] == "..":
            return False
        return not self._is_abbreviation(word)

    def _is_abbreviation(self, word: str) -> bool:
        kind = word[:-1].lower()
        return kind in self._abbreviations or kind.split("-")[-1] in self._abbreviations

    def _is_break(self, word: str, following: str) -> bool:
        """Return whether a sentence ends between two words: Punkt's second pass."""
        if word[-1] != ".":
            return word in SENTENCE_ENDS
        ends = self._is_end(word)
        kind, next_kind = strip_period(normalize_token(word)), normalize_token(following)
        if self._is_end(following):
            next_kind = strip_period(next_kind)
        if (kind, next_kind) in self._collocations:
            return False
        is_initial = INITIAL.match(word)
        if not ends and not is_initial and (word[-2:] != ".." or ELLIPSIS.match(word)):
            if self._starts_sentence(following, next_kind) is True:
                return True
            if following[0].isupper() and next_kind in self._starters:
                return True
        if is_initial or kind == NUMBER:
            starts = self._starts_sentence(following, next_kind)
            if starts is False:
                return False
            never_small = not self._orthography.get(next_kind, 0) & ORTHO_LC
            if starts is None and is_initial and following[0].isupper() and never_small:
                return False
        return ends

    def _starts_sentence(self, word: str, kind: str) -> bool | None:
        """Return whether a word begins a sentence; None if how it was written does not tell."""
        if word in PUNCTUATION:
            return False
        seen = self._orthography.get(kind, 0)
        if word[0].isupper() and seen & ORTHO_LC and not seen & ORTHO_MID_UC:
            return True
        if word[0].islower() and (seen & ORTHO_UC or not seen & ORTHO_BEG_LC):
            return False
        return None


def strip_period(kind: str) -> str:
    return kind[:-1] if len(kind) > 1 and kind[-1] == "." else kind
