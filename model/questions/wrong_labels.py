"""Which of my labels are wrong? Confident learning (Northcutt et al. 2021) over probabilities of
models that were not trained on the review.

cleanlab computes the same numbers; it takes pandas and two more packages for these few lines.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amazon_electra.model.evaluation.significance import compute_exact_interval
from amazon_electra.model.finetuning.examples import fold_text


@dataclass(frozen=True)
class Suspicion:
    """A label that looks wrong."""

    place: int
    """Of the example in the arrays."""
    suggested: int
    """Class that the model gives it."""
    confidence: float
    """Probability of that class."""
    is_contradicted: bool = False
    """Whether another copy of the text has another label."""


@dataclass(frozen=True)
class WrongLabels:
    """How many labels are wrong, estimated with a 95% interval, and which look so, the likeliest
    first.
    """

    suspicions: list[Suspicion]
    n: int
    estimate: float
    low: float
    high: float
    steps: int = 1
    """From the label to the suggestion, at least."""

    def describe(self) -> str:
        """Return a sentence for the report."""
        other = "another label" + f" {self.steps} or more steps away" * (self.steps > 1)
        return (
            f"About {self.estimate:,.0f} ({self.low:,.0f} to {self.high:,.0f}) of {self.n:,} "
            f"labels look wrong: models that had not seen the review give it {other}, and are "
            "as sure of that as they are of reviews that have it."
        )


def find_wrong_labels(
    probabilities: np.ndarray, labels: np.ndarray, texts: Sequence[str] = (), steps: int = 1
) -> WrongLabels:
    """Return which labels look wrong, and how many are.

    `probabilities` [n, classes] are out of fold; `labels` int [n]. A review counts as one of class
    k where its probability of k is at least the mean of those labelled k. Of the reviews labelled
    i, the share that counts as another class is that of wrong labels among all of them. Listed is
    every review whose likeliest class is another, and each copy of a text that has two labels.
    Classes nearer than `steps` do not count as another: 4 stars for 5 are a matter of taste.
    """
    n, classes = probabilities.shape
    own = probabilities[np.arange(n), labels]
    counts = np.bincount(labels, minlength=classes)
    means = np.bincount(labels, own, classes) / np.maximum(counts, 1)
    means[counts == 0] = np.inf  # nothing shows how sure the model is of a class without examples
    sure = np.where(probabilities >= means, probabilities, -1)
    is_sure, counted = sure.max(1) >= 0, sure.argmax(1)
    wrong = is_sure & (abs(counted - labels) >= steps)
    of_class = np.bincount(labels[is_sure], minlength=classes)
    shares = np.bincount(labels[wrong], minlength=classes) / np.maximum(of_class, 1)
    estimate = float(counts @ shares)
    found, out_of = int(wrong.sum()), int(is_sure.sum())
    low, high = compute_exact_interval(found, out_of)
    scale = estimate * out_of / found if found else float(n)
    likeliest = probabilities.argmax(1)
    contradicted = find_contradicted(texts, labels)
    suspicions = [
        Suspicion(int(i), int(likeliest[i]), float(probabilities[i, likeliest[i]]), bool(is_copy))
        for i, is_copy in enumerate(contradicted)
        if is_copy or abs(likeliest[i] - labels[i]) >= steps
    ]
    suspicions.sort(key=lambda one: (own[one.place] - one.confidence, one.place))
    return WrongLabels(suspicions, n, estimate, low * scale, high * scale, steps)


def find_contradicted(texts: Sequence[str], labels: np.ndarray) -> np.ndarray:
    """Return a mask of the examples of whose text (case and spaces aside) a copy has another label;
    without texts it is all false.
    """
    classes: defaultdict[str, set[int]] = defaultdict(set)
    folded = [fold_text(text) for text in texts]
    for text, label in zip(folded, labels.tolist(), strict=False):
        classes[text].add(label)
    if not folded:
        return np.zeros(len(labels), bool)
    return np.array([len(classes[text]) > 1 for text in folded], bool)
