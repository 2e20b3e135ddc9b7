"""Why this answer? Each phrase of a text weighs what the log-odds of its answer lose without it."""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil
from pathlib import Path

import numpy as np

from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.model_folder.drift import UNSPACED
from amazon_electra.beam_jobs.scoring.classifier import load_classifier

SENTENCE = re.compile(r"[^.!?…。！？]+[.!?…。！？]*\s*")
WORD = re.compile(rf"{UNSPACED}|\S+\s*")  # with the spaces after it
AROUND = re.compile(r"^\W+|\W+$")  # of a word
MAX_PHRASES = 24  # of a text; each is left out once, to ask the model without it
MIN_SENTENCES = 3  # of a text with more words than MAX_PHRASES, to take them for phrases
SHOWN, SHOWN_CHARACTERS = 3, 60
MIN_PROBABILITY = 1e-9
Weights = list[tuple[str, float]]  # of phrases, the largest first; below 0: against it


def explain(model: str | Path, texts: str | Sequence[str]) -> list[tuple[str, Weights]]:
    """Return the answer of a model folder to each text, and the weights of its phrases."""
    texts = [texts] if isinstance(texts, str) else texts
    classifier = load_classifier(str(model), "fp32")
    answers = classifier.score(list(texts)).argmax(1).tolist()
    pairs = zip(answers, texts, strict=True)
    return [(classifier.labels[k], weigh_phrases(classifier, text, k)) for k, text in pairs]


def weigh_phrases(classifier: Classifier, text: str, answer: int) -> Weights:
    """Return what phrases add to the log-odds of `answer` against the likeliest other class."""
    phrases = cut_into_phrases(text, MAX_PHRASES)
    if len(phrases) < 2:  # without it there is no text
        return [(phrase.strip(), 0.0) for phrase in phrases]
    places = pairwise(accumulate(map(len, phrases), initial=0))
    found = classifier.compute_probabilities([text, *(text[:a] + text[b:] for a, b in places)])
    bounded = np.clip(found, MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    rest = 1 - bounded[:, answer]
    if not classifier.config.is_multilabel:
        others = np.argsort(-found[0], kind="stable")
        rest = bounded[:, others[others != answer][0]]
    odds = np.log(bounded[:, answer]) - np.log(rest)
    pairs = zip(map(str.strip, phrases), (odds[0] - odds[1:]).tolist(), strict=True)
    return sorted(pairs, key=lambda one: -one[1])


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
    shown: dict[str, str] = {}
    for phrase, weight in weights:
        is_long = len(phrase) > SHOWN_CHARACTERS
        cut = f"{phrase[: SHOWN_CHARACTERS - 1].rstrip()}…" if is_long else phrase
        if weight > 0:
            shown.setdefault(AROUND.sub("", phrase).casefold(), f"“{cut}” {weight:+.2f}")
    return "; ".join([*shown.values()][:SHOWN])
