"""Logistic regression over hashed n-grams: `words.npz`, the logits of a text by it, and what each
word of the text adds to them: exactly, so that the weights of all words and the offsets add up to
the logits.

An n-gram of characters is of one word; one of words counts for each of them in equal parts. A word
stands between spaces.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np

from .config import WORDS, check_labels
from .network import Compute, Text, check_scores

N_GRAMS = (("word", (1, 2)), ("char_wb", (2, 5)))
"""Units and lengths. Characters within words add half a point of accuracy and 1.4 of macro-F1 on
4,661 reviews, and read what is misspelt.
"""
HASHED_FEATURES = 1 << 20
"""Columns of each kind of n-gram; 4,000 reviews have 330,000 distinct ones in all."""
WORD = re.compile(r"\S+")
EDGES = re.compile(r"^\W+|\W+$")
MIN_TEXTS, MAX_TOP = 3, 10  # texts that a top word is in, and top words of a class


def build_vectorizer(idf: np.ndarray | None = None) -> Any:
    """Return scikit-learn's union of hashed TF-IDF, of words and of characters within words; `idf`
    [features] is that of a fitted one.
    """
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.pipeline import FeatureUnion, make_pipeline

    weighing = [TfidfTransformer(sublinear_tf=True) for _ in N_GRAMS]
    if idf is not None:
        for one, own in zip(weighing, np.split(idf, len(N_GRAMS)), strict=True):
            one.idf_, one.n_features_in_ = own, HASHED_FEATURES
    hashers = [
        HashingVectorizer(
            analyzer=unit,
            ngram_range=lengths,
            n_features=HASHED_FEATURES,
            alternate_sign=False,
            norm=None,
            dtype=np.float32,
        )
        for unit, lengths in N_GRAMS
    ]
    parts = [make_pipeline(*both) for both in zip(hashers, weighing, strict=True)]
    return FeatureUnion(list(zip([unit for unit, _ in N_GRAMS], parts, strict=True)))


@dataclass(frozen=True)
class Words:
    """A fitted regression over TF-IDF."""

    union: Any
    """The fitted `build_vectorizer`."""
    weights: np.ndarray
    """Float32 [labels, features]."""
    offsets: np.ndarray
    """Float64 [labels]."""

    @property
    def hashers(self) -> list[Any]:
        """The HashingVectorizer of each part of the union."""
        return [part[0] for _, part in self.union.transformer_list]

    def compute_logits(self, texts: Sequence[Text]) -> np.ndarray:
        """Return float64 [texts, labels]."""
        joined = [one if isinstance(one, str) else " ".join(one) for one in texts]
        return np.asarray(self.union.transform(joined) @ self.weights.T + self.offsets)

    def divide(self, temperature: float) -> Self:
        """Return the regression whose logits are divided."""
        weights = self.weights / np.float32(temperature)
        return replace(self, weights=weights, offsets=self.offsets / temperature)

    def save(self, folder: Path) -> None:
        """Write words.npz, the same bytes for the same regression."""
        kept = np.flatnonzero(self.weights.any(0))
        idf = np.concatenate([part[1].idf_ for _, part in self.union.transformer_list])
        np.savez_compressed(
            folder / WORDS,
            n_grams=np.array([f"{unit} {lengths}" for unit, lengths in N_GRAMS]),
            idf=idf,
            kept=kept,
            weights=self.weights[:, kept],
            offsets=self.offsets,
        )

    @classmethod
    def load(cls, content: bytes) -> Self:
        """Return the regression of a words.npz; ValueError or KeyError where it is not one."""
        with np.load(BytesIO(content), allow_pickle=False) as read:
            n_grams = [f"{unit} {lengths}" for unit, lengths in N_GRAMS]
            if read["n_grams"].tolist() != n_grams:
                raise ValueError(f"n-grams {read['n_grams'].tolist()}, here {n_grams}")
            weights = np.zeros((len(read["offsets"]), len(read["idf"])), np.float32)
            weights[:, read["kept"]] = read["weights"]
            return cls(build_vectorizer(read["idf"]), weights, read["offsets"])

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


def find_top_words(weights: Words, texts: Sequence[str]) -> list[list[tuple[str, int, float]]]:
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


def load_pipeline(content: bytes, labels: Sequence[str]) -> Compute:
    """Return what computes the probabilities of texts by the pipeline of a model.skops.

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

    return compute
