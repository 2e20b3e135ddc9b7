"""What each word of a text adds to the logits of a logistic regression over hashed n-grams:
exactly, so that the weights of all words and the intercept add up to the logits.

An n-gram of characters is of one word; one of words counts for each of them in equal parts. A word
stands between spaces.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np

from .config import check_labels
from .network import Compute, Text, check_scores

WORD = re.compile(r"\S+")
EDGES = re.compile(r"^\W+|\W+$")
MIN_TEXTS, MAX_TOP = 3, 10  # texts that a top word is in, and top words of a class


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
    hashers: list[Any]  # A HashingVectorizer for each part of the union
    weights: np.ndarray  # float [classes, features], in the order of the labels

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

    def weigh(self, texts: Sequence[str]) -> list[tuple[list[tuple[int, int]], np.ndarray]]:
        """Return for each text the start and end of its words, and what each of them adds to each
        logit, float64 [words, classes].
        """
        places = [[found.span() for found in WORD.finditer(text)] for text in texts]
        words = [[text[a:b] for a, b in own] for text, own in zip(texts, places, strict=True)]
        rows = self.union.transform(texts).tocsr()
        rows.sort_indices()
        columns, owners, shares = ([list[Any]() for _ in texts] for _ in range(3))
        offset = 0
        for hasher in self.hashers:
            list_ngrams = make_lister(hasher)
            found = [list_ngrams(own) for own in words]
            column_of = hash_ngrams(hasher, {gram for grams, _, _ in found for gram in grams})
            for i, (grams, of_words, of_shares) in enumerate(found):
                columns[i] += [offset + column_of[gram] for gram in grams]
                owners[i] += of_words
                shares[i] += of_shares
            offset += hasher.n_features
        added = [np.zeros((len(own), len(self.weights))) for own in places]
        for i, own in enumerate(columns):
            if not own:
                continue
            start, end = rows.indptr[i : i + 2]
            kept, place = np.unique(own, return_inverse=True)
            value = rows.data[start + np.searchsorted(rows.indices[start:end], kept)]
            total = np.bincount(place, shares[i])  # of an n-gram that the text has several times
            part = np.array(shares[i]) * (value / total)[place]
            np.add.at(added[i], owners[i], part[:, None] * self.weights[:, own].T)
        return list(zip(places, added, strict=True))


def make_lister(
    hasher: Any,
) -> Callable[[Sequence[str]], tuple[list[str], list[int], list[float]]]:
    """Return what lists the n-grams of a text by its words: each n-gram once for each of its words,
    the number of the word, and one over the number of its words.
    """
    if hasher.analyzer == "char_wb":
        analyze = cache(hasher.build_analyzer())

        def list_characters(words: Sequence[str]) -> tuple[list[str], list[int], list[float]]:
            found = [analyze(word) for word in words]
            owners = [number for number, own in enumerate(found) for _ in own]
            return [gram for own in found for gram in own], owners, [1.0] * len(owners)

        return list_characters
    prepare, cut, (low, high) = (
        hasher.build_preprocessor(),
        hasher.build_tokenizer(),
        hasher.ngram_range,
    )

    def list_words(words: Sequence[str]) -> tuple[list[str], list[int], list[float]]:
        tokens = [(one, number) for number, word in enumerate(words) for one in cut(prepare(word))]
        grams, owners, shares = list[str](), list[int](), list[float]()
        for n in range(low, high + 1):
            for start in range(len(tokens) - n + 1):
                part = tokens[start : start + n]
                grams += [" ".join(one for one, _ in part)] * n
                owners += [number for _, number in part]
                shares += [1 / n] * n
        return grams, owners, shares

    return list_words


def hash_ngrams(hasher: Any, grams: Iterable[str]) -> dict[str, int]:
    """Return the column of each n-gram."""
    from sklearn.feature_extraction import FeatureHasher

    listed = list(grams)
    if not listed:
        return {}
    one = FeatureHasher(hasher.n_features, input_type="string", alternate_sign=False)
    columns = one.transform([[gram] for gram in listed]).indices
    return dict(zip(listed, columns.tolist(), strict=True))


def find_top_words(
    weights: WordWeights, texts: Sequence[str]
) -> list[list[tuple[str, int, float]]]:
    """Return the words that speak most for each class in these texts: the word, how many of the
    texts have it, and what it adds to the logit of the class over the mean of the classes, summed
    over the texts.
    """
    counts, sums = Counter[str](), dict[str, np.ndarray]()
    for text, (places, added) in zip(texts, weights.weigh(texts), strict=True):
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


def load_pipeline(content: bytes, labels: Sequence[str]) -> tuple[Any, Compute]:
    """Return the pipeline of model.skops, and what computes the probabilities of texts by it.

    skops loads the types of scikit-learn, SciPy and NumPy that it knows to be harmless; `trusted`
    names no others, so it raises for them.
    """
    from skops import io

    pipeline = io.loads(content, trusted=[])
    names = [str(name) for name in pipeline.classes_]
    check_labels(names)
    places = [list(labels).index(name) for name in names]

    def compute(texts: Sequence[Text]) -> np.ndarray:
        probabilities = np.zeros((len(texts), len(labels)))
        found = pipeline.predict_proba(
            [one if isinstance(one, str) else " ".join(one) for one in texts]
        )
        check_scores(found, len(texts), len(names))
        probabilities[:, places] = found
        return probabilities

    return pipeline, compute
