"""What each word of a text adds to the logits of a logistic regression over hashed n-grams:
exactly, so that the weights of all words and the intercept add up to the logits.

An n-gram of characters is of one word; one of words counts for each of them in equal parts. A word
stands between spaces.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

WORD = re.compile(r"\S+")
EDGES = re.compile(r"^\W+|\W+$")
MIN_TEXTS, MAX_TOP = 3, 10
"""Texts that a top word is in, and top words of a class."""


def list_regressions(model: Any) -> list[Any]:
    """Return the logistic regressions in one of scikit-learn's classifiers: itself, or one for each
    class.
    """
    return list(getattr(model, "estimators_", [model]))


@dataclass(frozen=True)
class WordWeights:
    """A pipeline of scikit-learn that this is known of: a union of hashed TF-IDF, of words or of
    characters within words, before a regression.
    """

    union: Any
    hashers: list[Any]
    """A HashingVectorizer for each part of the union."""
    weights: np.ndarray
    """Float [classes, features], in the order of the labels."""

    @classmethod
    def of_pipeline(cls, pipeline: Any, labels: Sequence[str]) -> Self | None:
        """Return the weights; None for a pipeline of another kind."""
        from sklearn.feature_extraction.text import HashingVectorizer
        from sklearn.pipeline import Pipeline

        union, regression = pipeline[0], pipeline[-1]
        parts = [part for _, part in getattr(union, "transformer_list", ())]
        hashers = [part[0] for part in parts if isinstance(part, Pipeline)]
        if (
            not hashers
            or len(hashers) < len(parts)
            or not all(
                isinstance(one, HashingVectorizer) and one.analyzer in ("word", "char_wb")
                for one in hashers
            )
        ):
            return None
        rows = np.concatenate([one.coef_ for one in list_regressions(regression)])
        if len(rows) == 1:  # two classes
            rows = np.concatenate([-rows / 2, rows / 2])
        weights = np.zeros((len(labels), rows.shape[1]), np.float32)
        weights[[list(labels).index(str(name)) for name in regression.classes_]] = rows
        return cls(union, hashers, weights)

    def weigh(self, text: str) -> tuple[list[tuple[int, int]], np.ndarray]:
        """Return start and end of each word of a text, and what it adds to each logit, float64
        [words, classes].
        """
        places = [found.span() for found in WORD.finditer(text)]
        words, columns, shares = [], [], []
        offset = 0
        for hasher in self.hashers:
            grams, of_words = list_ngrams(hasher, [text[a:b] for a, b in places])
            found = hash_ngrams(hasher, grams)
            for column, owners in zip(found.tolist(), of_words, strict=True):
                words += owners
                columns += [offset + column] * len(owners)
                shares += [1 / len(owners)] * len(owners)
            offset += hasher.n_features
        added = np.zeros((len(places), len(self.weights)))
        if columns:
            row = self.union.transform([text]).tocsr()
            row.sort_indices()
            kept, place = np.unique(columns, return_inverse=True)
            value = row.data[np.searchsorted(row.indices, kept)]
            total = np.bincount(place, shares)  # of an n-gram that the text has several times
            part = np.array(shares) * (value / total)[place]
            np.add.at(added, words, part[:, None] * self.weights[:, columns].T)
        return places, added


def list_ngrams(hasher: Any, words: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """Return the n-grams of a text by its words, and the numbers of the words of each."""
    grams: list[str] = []
    owners: list[list[int]] = []
    if hasher.analyzer == "char_wb":
        analyze = hasher.build_analyzer()
        for number, word in enumerate(words):
            found = analyze(word)
            grams += found
            owners += [[number]] * len(found)
        return grams, owners
    prepare, cut = hasher.build_preprocessor(), hasher.build_tokenizer()
    tokens = [(one, number) for number, word in enumerate(words) for one in cut(prepare(word))]
    low, high = hasher.ngram_range
    for n in range(low, high + 1):
        for start in range(len(tokens) - n + 1):
            part = tokens[start : start + n]
            grams.append(" ".join(one for one, _ in part))
            owners.append([number for _, number in part])
    return grams, owners


def hash_ngrams(hasher: Any, grams: Sequence[str]) -> np.ndarray:
    """Return the column of each n-gram, int [n]."""
    from sklearn.feature_extraction import FeatureHasher

    if not grams:
        return np.zeros(0, int)
    one = FeatureHasher(hasher.n_features, input_type="string", alternate_sign=False)
    return np.asarray(one.transform([[gram] for gram in grams]).indices)


def find_top_words(
    weights: WordWeights, texts: Sequence[str]
) -> list[list[tuple[str, int, float]]]:
    """Return the words that speak most for each class in these texts: the word, how many of the
    texts have it, and what it adds to the logit of the class over the mean of the classes, summed
    over the texts.
    """
    counts, sums = Counter[str](), dict[str, np.ndarray]()
    for text in texts:
        places, added = weights.weigh(text)
        own: dict[str, np.ndarray] = {}
        for (a, b), row in zip(places, added, strict=True):
            if word := EDGES.sub("", text[a:b]).casefold():
                own[word] = own.get(word, 0) + row - row.mean()
        for word, row in own.items():
            counts[word] += 1
            sums[word] = sums.get(word, 0) + row
    known = [word for word, n in counts.items() if n >= MIN_TEXTS]
    top = []
    for k in range(len(weights.weights)):
        best = sorted((w for w in known if sums[w][k] > 0), key=lambda w: (-sums[w][k], w))
        top.append([(w, counts[w], float(sums[w][k])) for w in best[:MAX_TOP]])
    return top
