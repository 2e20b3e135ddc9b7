"""Why this answer? The phrases of a text without which the model would be less sure of its answer.

A phrase is taken out, and the fall of the answer's log-odds is its weight: of TF-IDF that is what
all its n-grams add, of a network what its sentence or words do. Each phrase costs one more answer.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.core.drift import UNSPACED
from amazon_electra.beam_jobs.core.model_folder import choose_answers
from amazon_electra.beam_jobs.scoring.classifier import Classifier, load_classifier

SENTENCE = re.compile(r"[^.!?…。！？]+[.!?…。！？]*\s*")
WORD = re.compile(rf"{UNSPACED}|\S+\s*")
"""With the spaces after it; in scripts without spaces a character."""
MAX_PHRASES, MAX_WORDS = 24, 300
"""Of a text: of networks and of TF-IDF, to which each word is a phrase."""
MIN_SENTENCES = 3
"""Of a text with more words than MAX_PHRASES, to take them for phrases."""
SHOWN, SHOWN_CHARACTERS = 3, 60
MIN_PROBABILITY = 1e-9
Weights = list[tuple[str, float]]
"""Phrases of a text with their weights, the largest first; those below 0 speak against it."""


def explain(model: str | Path, texts: Sequence[str]) -> list[tuple[str, Weights]]:
    """Return the answer of a model folder to each text, and the weights of its phrases."""
    classifier = load_classifier(str(model), "fp32")
    answers = choose_answers(classifier.score(list(texts)), classifier.costs).tolist()
    weights = weigh_phrases(classifier, texts, answers)
    return [(classifier.labels[k], one) for k, one in zip(answers, weights, strict=True)]


def weigh_phrases(
    classifier: Classifier, texts: Sequence[str], answers: Sequence[int]
) -> list[Weights]:
    """Return the weights of the phrases of each text for the class that is its answer."""
    most = MAX_WORDS if classifier.is_linear else MAX_PHRASES
    found = []
    for text, answer in zip(texts, answers, strict=True):
        phrases = cut_into_phrases(text, most)
        if len(phrases) < 2:  # without it there is no text
            found.append([(phrase.strip(), 0.0) for phrase in phrases])
            continue
        starts = np.cumsum([0, *map(len, phrases)]).tolist()
        others = [text[:a] + text[b:] for a, b in pairwise(starts)]
        probability = classifier.compute_probabilities([text, *others])[:, answer]
        bounded = np.clip(probability, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        odds = np.log(bounded) - np.log1p(-bounded)
        weights = zip(phrases, (odds[0] - odds[1:]).tolist(), strict=True)
        found.append(sorted(((p.strip(), w) for p, w in weights), key=lambda one: -one[1]))
    return found


def cut_into_phrases(text: str, most: int) -> list[str]:
    """Return the phrases whose sequence is the text: words, or sentences where these are too many,
    or runs of words where the sentences are too few or too many.
    """
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
    """Return the phrases of the largest weights as a cell; each in quotes, so that no spreadsheet
    computes it.
    """
    shown = [(phrase, weight) for phrase, weight in weights[:SHOWN] if weight > 0]
    cut = [
        p if len(p) <= SHOWN_CHARACTERS else f"{p[: SHOWN_CHARACTERS - 1].rstrip()}…"
        for p, _ in shown
    ]
    return "; ".join(f"“{p}” {w:+.2f}" for p, (_, w) in zip(cut, shown, strict=True))
