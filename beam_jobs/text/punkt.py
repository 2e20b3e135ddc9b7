"""NLTK's Punkt: trained on texts, kept as JSON, asked. Import it late: NLTK takes long."""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from nltk.tokenize.punkt import (
    PunktLanguageVars,
    PunktParameters,
    PunktSentenceTokenizer,
    PunktToken,
    PunktTrainer,
)

from amazon_electra.beam_jobs.core import storage
from amazon_electra.beam_jobs.core.errors import UserError

MARK = r"""[)";}\]*:@'({\[\u2018\u2019\u201c\u201d\xab\xbb!?]"""
RUN = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
END = rf"\s|$|{MARK}|{RUN}"
WORDS = re.compile(rf"{RUN}|(?=[^(\"`{{\[:;&#*@)}}\]\-,])\S+?(?={END}|,(?={END}))|\S")
"""NLTK's own expression for words (3.10), for Python's engine, which is faster."""


class LanguageVars(PunktLanguageVars):
    def word_tokenize(self, s: str) -> list[str]:
        # the engines agree on " " as white space, and other is not printable
        return WORDS.findall(s) if s.isprintable() else super().word_tokenize(s)


@lru_cache(1 << 15)
def compute_type(tok: str) -> str:
    """Return the token in lower case, numbers as ##number##, as NLTK's token does."""
    return tok.lower() if tok.isalpha() else PunktToken(tok).type


class Token(PunktToken):
    """NLTK's token with cached answers, with which Punkt trains in half the time."""

    def __init__(
        self, tok: str, parastart: bool | None = None, linestart: bool | None = None
    ) -> None:
        self.tok = tok
        self.type = compute_type(tok)
        self.period_final = tok[-1:] == "."
        self.parastart, self.linestart = parastart, linestart
        self.sentbreak = self.abbr = self.ellipsis = None

    @property
    def is_ellipsis(self) -> Any:
        return self.tok[:2] == ".." and super().is_ellipsis

    @property
    def is_initial(self) -> Any:
        return self.tok[1:] == "." and super().is_initial


def train_punkt(texts: Iterable[str]) -> PunktParameters:
    """Train Punkt on texts, whose order decides which rare words count as abbreviations."""
    trainer = PunktTrainer(lang_vars=LanguageVars(), token_cls=Token)
    trainer.train("\n".join(texts), finalize=True)
    return trainer.get_params()


def encode_punkt(parameters: PunktParameters) -> str:
    """Encode parameters as JSON; the same parameters give the same bytes."""
    return json.dumps(
        {
            "abbrev_types": sorted(parameters.abbrev_types),
            "collocations": sorted(parameters.collocations),
            "sent_starters": sorted(parameters.sent_starters),
            "ortho_context": dict(sorted(parameters.ortho_context.items())),
        },
        ensure_ascii=False,
    )


def decode_punkt(text: str) -> PunktParameters:
    """Return the parameters that `encode_punkt` was given."""
    stored = json.loads(text)
    parameters = PunktParameters()
    parameters.abbrev_types = set(stored["abbrev_types"])
    parameters.collocations = {tuple(pair) for pair in stored["collocations"]}
    parameters.sent_starters = set(stored["sent_starters"])
    parameters.ortho_context.update(stored["ortho_context"])
    return parameters


def read_punkt(path: str) -> PunktParameters:
    """Read what `--punkt` names: the punkt.json of a corpus, or its folder."""
    file = path if path.endswith(".json") else storage.join_path(path, "punkt.json")
    try:
        return decode_punkt(storage.read_bytes(file).decode())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"not the punkt.json of a corpus ({error!r})", "punkt", file) from None


PLAIN_WORD = re.compile(r"[A-Za-z]{2,}([.!?])")
MAX_REMEMBERED = 1 << 16  # words, and as many pairs; a review has 1.5 and 0.3 new ones


class Breaks:
    """Punkt's answers, each asked for once."""

    def __init__(self, parameters: PunktParameters) -> None:
        language = LanguageVars()
        self.punkt = PunktSentenceTokenizer(parameters, lang_vars=language, token_cls=Token)
        self._split_words = language.word_tokenize
        self._abbreviations = parameters.abbrev_types
        self._first_of_collocation = {first for first, _ in parameters.collocations}
        self.breaks_after = lru_cache(MAX_REMEMBERED)(self._breaks_after)
        self.breaks_in = lru_cache(MAX_REMEMBERED)(self.punkt.text_contains_sentbreak)

    def _breaks_after(self, word: str) -> bool:
        """Return whether Punkt surely breaks after `word` and a space: it goes on only after an
        initial, a number or the first of a collocation.
        """
        if plain := PLAIN_WORD.fullmatch(word):
            kind = word[:-1].lower()
            known = kind in self._abbreviations or kind in self._first_of_collocation
            return plain[1] != "." or not known
        last = Token(self._split_words(word)[-1])
        if last.tok in ("!", "?"):
            return True
        if not last.period_final or last.tok.endswith(".."):
            return False
        kind = last.type_no_period
        if {kind, kind.split("-")[-1]} & self._abbreviations:
            return False
        return not (kind in self._first_of_collocation or last.is_initial or last.is_number)
