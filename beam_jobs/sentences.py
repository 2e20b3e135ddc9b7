"""Sentence boundaries: NLTK's Punkt, trained on the dump, with the same sentences several times as fast."""

import json
from collections.abc import Iterable

from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer, PunktTrainer


def train(texts: Iterable[str]) -> PunktParameters:
    """Texts in a fixed order: the order decides which rare words count as abbreviations."""
    trainer = PunktTrainer()
    trainer.train("\n".join(texts), finalize=True)
    return trainer.get_params()


def to_json(parameters: PunktParameters) -> str:
    """The same parameters give the same bytes."""
    return json.dumps(
        {
            "abbrev_types": sorted(parameters.abbrev_types),
            "collocations": sorted(parameters.collocations),
            "sent_starters": sorted(parameters.sent_starters),
            "ortho_context": dict(sorted(parameters.ortho_context.items())),
        },
        ensure_ascii=False,
    )


def from_json(text: str) -> PunktParameters:
    stored = json.loads(text)
    parameters = PunktParameters()
    parameters.abbrev_types = set(stored["abbrev_types"])
    parameters.collocations = {tuple(pair) for pair in stored["collocations"]}
    parameters.sent_starters = set(stored["sent_starters"])
    parameters.ortho_context.update(stored["ortho_context"])
    return parameters


class SentenceSplitter:
    def __init__(self, parameters: PunktParameters) -> None:
        self._tokenizer = PunktSentenceTokenizer(parameters)

    def split(self, text: str) -> list[str]:
        return self._tokenizer.tokenize(text)
