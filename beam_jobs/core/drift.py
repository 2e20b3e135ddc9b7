"""Does a model still hold? How the texts of a new file differ from those that it was tested on.

model.export writes a profile of the tested texts into the model folder; `score` counts the same of
a new file, a unit at a time, and compares the two. The expected accuracy needs no labels: an answer
counts as often right as tested answers of about its probability and its share of unknown words. A
naive Bayes classifier between tested and new texts says how many of the new ones are unlike all
that was tested: of those nothing is known but that they are right as often as a guess or better.
"""

import base64
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import sqrt
from operator import add
from typing import Any, Self

import numpy as np

PROFILE = "profile.json"
"""Of a model folder."""
UNSPACED = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
"""A character of a script without spaces."""
WORD = re.compile(rf"{UNSPACED}|[^\W\d_]+")
"""A run of letters; in scripts without spaces each character."""
MAX_CHARACTERS = 5_000
"""Of a text that are looked at."""
MIN_TEXTS, MAX_WORDS = 2, 20_000
"""A known word is in so many texts; the most frequent ones are kept."""
MAX_DOCUMENTS, MAX_DOCUMENT_WORDS, BUCKETS = 300, 80, 1 << 16
"""Texts that the classifier reads, their words, and the numbers that words are hashed to."""
FOLDS = 4
"""Of the classifier."""
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Between the groups of probabilities of answers."""
QUANTILES = (0.5, 0.8, 0.9, 0.98)
"""Of the share of unknown words of tested texts, between its groups; above the last lie few."""
PRIOR = 10
"""Tested answers that the probabilities of a group weigh as much as."""
MIN_PROFILE, MIN_NEW = 50, 30
"""Tested texts below which there is no profile, new ones below which nothing is said."""
Z = 3.5
"""Standard errors from which on a difference is no chance: one in 2,000."""
MIN_CHANGE = {"language": 0.1, "unlike": 0.15, "cut": 0.1, "class": 0.1, "accuracy": 0.02}
"""Changes of a share below which nothing is said, however many texts show them."""
DOUBT = 1.5
"""Times the share of unlike texts, which is one at least, by which the lower end of the expected
accuracy goes down: on 30 pairs of six shops 24 intervals with 1 held the accuracy, 29 with 1.5."""
ALL = 0.995
"""Share that is shown as 100%."""
KEPT_WORDS, SHOWN_WORDS = 200, 5
"""Unknown words that a unit reports, and those in a sentence; the most frequent ones."""


@dataclass(frozen=True)
class Tally:
    """What is counted of texts; `+` counts those of both."""

    grid: np.ndarray
    """Float [groups of unknown words, groups of probabilities, 3]: answers, the sum of their
    probabilities, and how many of them are right (0 where nobody knows)."""
    answers: np.ndarray
    """int [classes]."""
    unknown: float = 0.0
    """Sum over texts of the share of their words that is unknown."""
    cut: int = 0
    """Texts longer than the model reads."""
    languages: Counter[str] = field(default_factory=Counter)
    """Texts by language; those of a few words are in none."""
    words: Counter[str] = field(default_factory=Counter)
    """Texts by unknown word."""
    documents: list[list[int]] = field(default_factory=list)
    """Numbers of the words of the first MAX_DOCUMENTS texts."""

    def __add__(self, other: "Tally") -> "Tally":
        both = {name: add(getattr(self, name), getattr(other, name)) for name in FIELDS}
        return Tally(**both | {"documents": both["documents"][:MAX_DOCUMENTS]})

    @property
    def n(self) -> int:
        return int(self.answers.sum())

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS} | {
            "grid": np.round(self.grid, 4).tolist(),
            "answers": self.answers.tolist(),
            "unknown": round(self.unknown, 4),
            "languages": dict(self.languages),
            "words": dict(self.words.most_common(KEPT_WORDS)),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        return cls(
            **{
                **found,
                "grid": np.array(found["grid"], float),
                "answers": np.array(found["answers"], np.int64),
                "languages": Counter(found["languages"]),
                "words": Counter(found["words"]),
            }
        )


FIELDS = tuple(Tally.__dataclass_fields__)


@dataclass(frozen=True)
class Profile:
    """The texts that a model was tested on."""

    labels: list[str]
    words: np.ndarray
    """uint32, ascending: checksums of the words of training texts."""
    edges: np.ndarray
    """Float [QUANTILES]: shares of unknown words between the groups."""
    shares: list[float]
    """Of the classes among the right answers."""
    tested: Tally
    stars: dict[str, str] = field(default_factory=dict)
    """Class by number of stars, of a task that has its answers from stars."""

    @classmethod
    def of_texts(
        cls,
        labels: Sequence[str],
        known: Iterable[str],
        tested: Sequence[str],
        probabilities: np.ndarray,
        right: np.ndarray,
        languages: Mapping[str, int],
        cut: int = 0,
        stars: Mapping[str, str] | None = None,
    ) -> Self | None:
        """Return the profile, or None where too few texts were tested. `known` are training texts,
        `tested` others, with calibrated `probabilities` [n, classes] and `right` answers int [n];
        `languages` and `cut` are as for `count`.
        """
        if len(tested) < MIN_PROFILE:
            return None
        words = collect_words(known)
        edges = np.quantile(measure_unknown(tested, words)[0], QUANTILES)
        shares = (np.bincount(right, minlength=len(labels)) / len(right)).tolist()
        given = words, edges, tested, probabilities, languages, cut
        found = count_texts(*given, right)
        return cls(list(labels), words, edges, shares, found, dict(stars or {}))

    def count(
        self,
        texts: Sequence[str],
        probabilities: np.ndarray,
        languages: Mapping[str, int],
        cut: int = 0,
    ) -> Tally:
        """Return the tally of new texts with their probabilities [n, classes]. `languages` counts
        them by language, `cut` those that are longer than the model reads.
        """
        return count_texts(self.words, self.edges, texts, probabilities, languages, cut)

    def to_json(self) -> dict[str, Any]:
        return {
            "labels": self.labels,
            "words": base64.b64encode(self.words.astype("<u4").tobytes()).decode(),
            "edges": self.edges.tolist(),
            "shares": self.shares,
            "stars": self.stars,
            "tested": self.tested.to_json() | {"words": {}},
        }

    @classmethod
    def from_json(cls, content: str | bytes) -> Self:
        found = json.loads(content)
        words = np.frombuffer(base64.b64decode(found["words"]), "<u4")
        edges, tested = np.array(found["edges"], float), Tally.from_json(found["tested"])
        return cls(found["labels"], words, edges, found["shares"], tested, found["stars"])


def count_texts(
    known: np.ndarray,
    edges: np.ndarray,
    texts: Sequence[str],
    probabilities: np.ndarray,
    languages: Mapping[str, int],
    cut: int,
    right: np.ndarray | None = None,
) -> Tally:
    """Return the tally of texts; `right` int [n] are the right answers, where somebody knows."""
    shares, unknown = measure_unknown(texts, known)
    answered = probabilities.argmax(1)
    confidence = probabilities.max(1)
    grid = np.zeros((len(QUANTILES) + 1, len(CONFIDENCES) + 1, 3))
    places = np.searchsorted(edges, shares), np.searchsorted(CONFIDENCES, confidence)
    is_right = np.zeros(len(texts)) if right is None else answered == right
    for layer, values in enumerate((np.ones(len(texts)), confidence, is_right)):
        np.add.at(grid[..., layer], places, values)
    return Tally(
        grid,
        np.bincount(answered, minlength=probabilities.shape[1]),
        float(shares.sum()),
        cut,
        Counter(languages),
        unknown,
        [
            sorted({_hash(word) % BUCKETS for word in list_words(text)})[:MAX_DOCUMENT_WORDS]
            for text in texts[:MAX_DOCUMENTS]
        ],
    )


def sum_tallies(tallies: Iterable[Tally]) -> Tally | None:
    """Return the tally of all; None without any."""
    found = list(tallies)
    return reduce(add, found) if found else None


def list_words(text: str) -> list[str]:
    return WORD.findall(text[:MAX_CHARACTERS].casefold())


def collect_words(texts: Iterable[str]) -> np.ndarray:
    """Return the checksums, uint32 ascending, of the words that are in MIN_TEXTS of the texts."""
    counts = Counter(word for text in texts for word in {*list_words(text)})
    chosen = [word for word, n in counts.most_common(MAX_WORDS) if n >= MIN_TEXTS]
    return np.unique(np.array([_hash(word) for word in chosen], np.uint32))


def _hash(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "replace"))


def measure_unknown(texts: Sequence[str], known: np.ndarray) -> tuple[np.ndarray, Counter[str]]:
    """Return the share of unknown words of each text, float [n] (1 where it has no word), and how
    many texts have each unknown word.
    """
    listed = [list_words(text) for text in texts]
    distinct = sorted({word for words in listed for word in words})
    is_known = np.isin(np.array([_hash(word) for word in distinct], np.uint32), known)
    unknown = {word for word, found in zip(distinct, is_known, strict=True) if not found}
    shares = [sum(map(unknown.__contains__, one)) / len(one) if one else 1.0 for one in listed]
    return np.array(shares), Counter(word for words in listed for word in {*words} & unknown)


Pair = tuple[float, float]
"""Of the new texts, and of the tested ones."""


@dataclass(frozen=True)
class Drift:
    """How new texts differ from those that a model was tested on."""

    n: int
    expected: float
    """Accuracy, estimated without labels, with its 95% interval."""
    low: float
    high: float
    tested: float
    """Accuracy on the tested texts, as counted."""
    confidence: Pair
    """Mean probability of the answers."""
    unlike: float
    """Share of the new texts that are unlike the tested ones, at least."""
    unknown: Pair
    """Mean share of unknown words."""
    cut: Pair
    """Share of texts that are longer than the model reads."""
    languages: dict[str, Pair]
    """Share of texts by language, the most frequent ones."""
    answers: dict[str, Pair]
    """Share of the answers by class."""
    findings: list[str]
    """What a person should know; empty: the new texts are like the tested ones."""
    accuracy: float | None = None
    """By labels that the file itself has, and how many those are."""
    labelled: int = 0

    def describe(self) -> str:
        """Return a sentence."""
        interval = f"{self.low:.0%} to {self.high:.0%}"
        about = f"expected accuracy {self.expected:.0%} ({interval}; {self.tested:.0%} on test)"
        if self.accuracy is not None:
            about += f"; by its own {self.labelled:,} labels {self.accuracy:.1%}"
        found = "; ".join(self.findings) or "like the reviews that the model was tested on"
        return f"{found}; {about}"


def compare_texts(profile: Profile, new: Tally, right: int = 0, labelled: int = 0) -> Drift | None:
    """Return how new texts differ from the tested ones; None where there are too few. Of `labelled`
    answers to texts with labels of their own so many are `right`.
    """
    old = profile.tested
    if new.n < MIN_NEW:
        return None
    unlike = measure_unlike(old, new)
    guess = min(1 / len(profile.labels), float(new.answers / new.n @ profile.shares))
    expected, low, high = estimate_accuracy(old.grid, new.grid, unlike, guess)
    spoken = max(1, new.languages.total()), max(1, old.languages.total())
    tested = float(old.grid[..., 2].sum() / old.n)
    found = Drift(
        n=new.n,
        expected=expected,
        low=low,
        high=high,
        tested=tested,
        confidence=_pair(lambda one: one.grid[..., 1].sum() / one.n, new, old),
        unlike=unlike,
        unknown=_pair(lambda one: one.unknown / one.n, new, old),
        cut=_pair(lambda one: one.cut / one.n, new, old),
        languages={
            name: (count / spoken[0], old.languages[name] / spoken[1])
            for name, count in new.languages.most_common(SHOWN_WORDS)
        },
        answers={
            name: (float(new.answers[i] / new.n), float(old.answers[i] / old.n))
            for i, name in enumerate(profile.labels)
        },
        findings=[],
        accuracy=right / labelled if labelled else None,
        labelled=labelled,
    )
    of = new.n, old.n
    for language, shares in found.languages.items():
        if old.languages and is_change("language", shares, spoken) and shares[0] > shares[1]:
            text = f"{shares[0]:.0%} of the texts are in the language {language}"
            found.findings.append(f"{text} ({shares[1]:.0%} of those it learnt from)")
    if unlike >= MIN_CHANGE["unlike"]:
        words = ", ".join(word for word, _ in new.words.most_common(SHOWN_WORDS))
        share = "all" if unlike > ALL else f"at least {unlike:.0%}"
        text = f"{share} of the texts are unlike those it was tested on"
        about = f"{found.unknown[0]:.0%} of the words are unknown, {found.unknown[1]:.0%} on test"
        found.findings.append(f"{text} ({about}: {words})" if words else f"{text} ({about})")
    if is_change("cut", found.cut, of) and found.cut[0] > found.cut[1]:
        text = f"{found.cut[0]:.0%} of the texts are longer than it reads"
        found.findings.append(f"{text} ({found.cut[1]:.0%} on test)")
    name, shares = max(found.answers.items(), key=rank_change)
    if is_change("class", shares, of):
        found.findings.append(
            f"{shares[0]:.0%} of the answers are {name} ({shares[1]:.0%} on test)"
        )
    if high < tested - MIN_CHANGE["accuracy"]:
        found.findings.append("fewer answers are right")
    return found


def rank_change(one: tuple[str, Pair]) -> tuple[float, bool]:
    """Rank a class by how much its share changed; of equal changes one that grew comes first."""
    change = one[1][0] - one[1][1]
    return round(abs(change), 6), change > 0


def _pair(measure: Any, new: Tally, old: Tally) -> Pair:
    return float(measure(new)), float(measure(old))


def is_change(what: str, shares: Pair, of: tuple[int, int]) -> bool:
    """Return whether two shares, of so many texts, differ by as much as matters and by more than
    chance.
    """
    change = abs(shares[0] - shares[1])
    pooled = (shares[0] * of[0] + shares[1] * of[1] + 1) / (sum(of) + 2)
    error = sqrt(pooled * (1 - pooled) * (1 / of[0] + 1 / of[1]))
    return change >= MIN_CHANGE[what] and change > Z * error


def measure_unlike(old: Tally, new: Tally) -> float:
    """Return the share of new texts that are unlike the tested ones, at least: those with more
    unknown words than nearly all tested ones, or those that a classifier can separate.

    If a share e of two groups of texts is taken for the other group's, they have at most 2e in
    common; of e its upper 95% bound counts.
    """
    rare, of = [one.grid[-1, :, 0].sum() / one.n for one in (new, old)], (new.n, old.n)
    excess = rare[0] - rare[1] - compute_noise(rare, of)
    wrong = classify_texts(old.documents, new.documents)
    texts = len(old.documents), len(new.documents)
    return float(max(0.0, excess, 1 - sum(wrong) - compute_noise(wrong, texts)))


def compute_noise(shares: Sequence[float], of: Sequence[int]) -> float:
    """Return by how much the sum or difference of two shares, of so many texts, may be too large
    by chance (95%).
    """
    return 1.64 * sqrt(sum(p * (1 - p) / n for p, n in zip(shares, of, strict=True)))


def classify_texts(old: Sequence[list[int]], new: Sequence[list[int]]) -> Pair:
    """Return the shares of old and of new texts, lists of numbers of words, that naive Bayes takes
    for the other group's, by cross-validation.
    """
    wrong = [0, 0]
    for fold in range(FOLDS):
        shares = []
        for texts in (old, new):
            rest = [text for place, text in enumerate(texts) if place % FOLDS != fold]
            numbers = np.array([number for text in rest for number in text], np.int64)
            counts = np.bincount(numbers, minlength=BUCKETS)
            shares.append((counts + 0.5) / (len(rest) + 1))
        absent = np.log((1 - shares[1]) / (1 - shares[0]))
        weights = np.log(shares[1] / shares[0]) - absent
        for group, texts in enumerate((old, new)):
            for text in texts[fold::FOLDS]:
                wrong[group] += (weights[text].sum() + absent.sum() > 0) != group
    return wrong[0] / len(old), wrong[1] / len(new)


def estimate_accuracy(
    old: np.ndarray, new: np.ndarray, unlike: float, guess: float
) -> tuple[float, float, float]:
    """Return the expected accuracy of new texts with its 95% interval, by the grids of both. Of a
    share `unlike` nothing is known but bounds: right as often as a `guess`, or wrong half as often
    as its probabilities say.
    """
    counts, n = new[..., 0], new[..., 0].sum()
    says = np.divide(new[..., 1], counts, out=np.zeros_like(counts), where=counts > 0)
    accuracy = (old[..., 2] + PRIOR * says) / (old[..., 0] + PRIOR)
    # where all tested answers are right there is noise too
    careful = (old[..., 2] + PRIOR * says + 1) / (old[..., 0] + PRIOR + 2)
    weights, noise = counts / n, careful * (1 - careful)
    variance = (weights**2 * noise / (old[..., 0] + PRIOR)).sum() + (weights * noise).sum() / n
    margin = 1.96 * sqrt(variance + unlike * 0.25 / n)
    known = float((weights * accuracy).sum())
    sure = max(known, float(new[..., 1].sum() / n))
    guess = min(guess, known)
    low = known - min(1.0, DOUBT * unlike) * (known - guess) - margin
    high = known + unlike * (sure - known + (1 - sure) / 2) + margin
    return known - unlike * (known - guess) / 2, max(0.0, low), min(1.0, high)
