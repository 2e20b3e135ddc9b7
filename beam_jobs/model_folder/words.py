"""Logistic regression over hashed n-grams: `words.npz`, and the logits of a text by it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Self

import numpy as np

from .config import WORDS, check_labels
from .network import Compute, Text

N_GRAMS = (("word", (1, 2)), ("char_wb", (2, 5)))  # characters read what is misspelt
HASHED_FEATURES = 1 << 20  # of each kind; 4,000 reviews have 330,000 distinct n-grams in all
EDGES = re.compile(r"^\W+|\W+$")
MIN_TEXTS, MAX_TOP = 3, 10  # texts that a top word is in, and top words of a class


def build_vectorizer(idf: np.ndarray | None = None) -> Any:
    """Return hashed TF-IDF of words and of characters within words; `idf` [features], if fitted."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.pipeline import FeatureUnion, make_pipeline

    weighing = [TfidfTransformer(sublinear_tf=True) for _ in N_GRAMS]
    if idf is not None:
        for one, own in zip(weighing, np.split(idf, len(N_GRAMS)), strict=True):
            one.idf_, one.n_features_in_ = own, HASHED_FEATURES
    raw: dict[str, Any] = {"alternate_sign": False, "norm": None, "dtype": np.float32}
    parts = []
    for (unit, lengths), own in zip(N_GRAMS, weighing, strict=True):
        hasher = HashingVectorizer(
            analyzer=unit, ngram_range=lengths, n_features=HASHED_FEATURES, **raw
        )
        parts.append((unit, make_pipeline(hasher, own)))
    return FeatureUnion(parts)


@dataclass(frozen=True)
class Words:
    """A fitted regression over TF-IDF."""

    union: Any  # the fitted `build_vectorizer`
    weights: np.ndarray  # float32 [labels, features]
    offsets: np.ndarray  # float64 [labels]

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


def find_top_words(words: Words, texts: Sequence[str]) -> list[list[tuple[str, int, float]]]:
    """Return the words that speak most for each class in these texts: the word, how many of the
    texts have it, and what its n-grams add to the logit of the class over the mean of the classes,
    before a text's length counts, as often as texts have it.
    """
    counts = Counter(
        word for text in texts for word in {EDGES.sub("", one).casefold() for one in text.split()}
    )
    known = [word for word, n in counts.items() if word and n >= MIN_TEXTS]
    logits = np.zeros((len(known), len(words.offsets)))
    parts = zip(words.union.transformer_list, np.split(words.weights, len(N_GRAMS), 1), strict=True)
    for (_, (hasher, weighing)), weights in parts if known else ():
        logits += hasher.transform(known).multiply(weighing.idf_) @ weights.T
    added = (logits - logits.mean(1, keepdims=True)) * [[counts[word]] for word in known]
    top = []
    for own in added.T.tolist():
        best = sorted(zip(known, own, strict=True), key=lambda one: (-one[1], one[0]))[:MAX_TOP]
        top.append([(word, counts[word], value) for word, value in best if value > 0])
    return top


def load_pipeline(content: bytes, labels: Sequence[str]) -> Compute:
    """Return what computes probabilities by a model.skops, of types that skops trusts itself."""
    from skops import io

    pipeline = io.loads(content, trusted=[])
    names = [str(name) for name in pipeline.classes_]
    check_labels(names)
    places = [list(labels).index(name) for name in names]

    def compute(texts: Sequence[Text]) -> np.ndarray:
        probabilities = np.zeros((len(texts), len(labels)))
        joined = [one if isinstance(one, str) else " ".join(one) for one in texts]
        probabilities[:, places] = pipeline.predict_proba(joined)
        return probabilities

    return compute
