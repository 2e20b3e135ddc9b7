"""Why this answer? The phrases of a text, with what they add to the log-odds of its answer.

Words of TF-IDF have exact weights, the sum of those of their n-grams. A network is asked again
without each phrase: by how much its log-odds fall is the weight. A model of both adds these up. In
scripts without spaces all weights are such falls.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.core.drift import UNSPACED
from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.scoring.classifier import load_classifier

SENTENCE = re.compile(r"[^.!?…。！？]+[.!?…。！？]*\s*")
WORD = re.compile(rf"{UNSPACED}|\S+\s*")
"""With the spaces after it; in scripts without spaces a character."""
AROUND = re.compile(r"^\W+|\W+$")  # of a word
MAX_PHRASES, MAX_WORDS = 24, 300
"""Phrases of a text that are left out: of networks, and of models of microseconds a text."""
MIN_SENTENCES = 3  # of a text with more words than MAX_PHRASES, to take them for phrases
SHOWN, SHOWN_CHARACTERS = 3, 60
MIN_PROBABILITY = 1e-9
Weights = list[tuple[str, float]]
"""Phrases of a text with their weights, the largest first; those below 0 speak against it."""


def explain(model: str | Path, texts: str | Sequence[str]) -> list[tuple[str, Weights]]:
    """Return the answer of a model folder to each text, and the weights of its phrases."""
    texts = [texts] if isinstance(texts, str) else texts
    classifier = load_classifier(str(model), "fp32")
    answers = classifier.score(list(texts)).argmax(1).tolist()
    weights = weigh_phrases(classifier, texts, answers)
    return [(classifier.labels[k], one) for k, one in zip(answers, weights, strict=True)]


def weigh_phrases(
    classifier: Classifier, texts: Sequence[str], answers: Sequence[int]
) -> list[Weights]:
    """Return the weights of the phrases of each text for the class that is its answer."""
    return [
        weigh_text(classifier, text, answer) for text, answer in zip(texts, answers, strict=True)
    ]


def weigh_text(classifier: Classifier, text: str, answer: int) -> Weights:
    """Return what the phrases of a text add to the log-odds of the class `answer` against the
    likeliest other one, or in a multi-label model against its absence.
    """
    probabilities = classifier.compute_probabilities([text])[0]
    others = [k for k in np.argsort(-probabilities, kind="stable").tolist() if k != answer]
    rival = None if classifier.config.is_multilabel else others[0]
    parts = classifier.parts or [(classifier, 1.0)]
    is_spaced = not re.search(UNSPACED, text)
    exact = [
        (one.words, weight / one.config.temperature)
        for one, weight in parts
        if one.words and is_spaced
    ]
    asked = [(one, weight) for one, weight in parts if not (one.words and is_spaced)]
    most = MAX_WORDS if all(one.is_linear for one, _ in asked) else MAX_PHRASES
    phrases = cut_into_phrases(text, most if asked else len(text))
    starts = np.cumsum([0, *map(len, phrases)])
    weights = np.zeros(len(phrases))
    for words, weight in exact:
        places, added = words.weigh([text])[0]
        own = added[:, answer] - (added[:, rival] if rival is not None else 0)
        phrase = np.searchsorted(starts, [start for start, _ in places], side="right") - 1
        np.add.at(weights, phrase, weight * own)
    if len(phrases) > 1:  # without it there is no text
        without = [text[:a] + text[b:] for a, b in pairwise(starts.tolist())]
        for one, weight in asked:
            found = one.compute_probabilities([text, *without])
            bounded = np.clip(found, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
            rest = bounded[:, rival] if rival is not None else 1 - bounded[:, answer]
            odds = np.log(bounded[:, answer]) - np.log(rest)
            weights += weight * (odds[0] - odds[1:])
    pairs = zip(phrases, weights.tolist(), strict=True)
    return sorted(((p.strip(), w) for p, w in pairs), key=lambda one: -one[1])


def cut_into_phrases(text: str, most: int) -> list[str]:
    """Return phrases that are the text: words, sentences, or runs of words if too many."""
    start = len(text) - len(text.lstrip())
    words = WORD.findall(text[start:])
    sentences = SENTENCE.findall(text[start:])
    if len(words) > most:
        are_whole = "".join(sentences) == text[start:]
        if are_whole and MIN_SENTENCES <= len(sentences) <= most:
            words = sentences
        else:
            size = ceil(len(words) / most)
            words = ["".join(words[i : i + size]) for i in range(0, len(words), size)]
    return [text[:start] + words[0], *words[1:]] if words else []


def describe_weights(weights: Weights) -> str:
    """Return the phrases of the largest weights as a cell that no spreadsheet computes."""
    once: dict[str, tuple[str, float]] = {}
    for phrase, weight in weights:
        if weight > 0:
            once.setdefault(AROUND.sub("", phrase).casefold(), (phrase, weight))
    shown = list(once.values())[:SHOWN]
    cut = [
        p if len(p) <= SHOWN_CHARACTERS else f"{p[: SHOWN_CHARACTERS - 1].rstrip()}…"
        for p, _ in shown
    ]
    return "; ".join(f"“{p}” {w:+.2f}" for p, (_, w) in zip(cut, shown, strict=True))
