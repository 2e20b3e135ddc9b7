"""Does a model still hold? `score` compares a sample of a new file with the profile of the tested
texts in the model folder: without labels, an answer counts as often right as tested answers of
about its probability and its share of unknown words.
"""

import base64
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import sqrt
from typing import Any, Self

import numpy as np

PROFILE = "profile.json"  # of a model folder
# a character of a script without spaces; a word is one of these, or a run of other letters
UNSPACED = r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]"
WORD = re.compile(rf"{UNSPACED}|[^\W\d_]+")
MAX_CHARACTERS = 5_000  # of a text that are looked at
MIN_TEXTS, MAX_WORDS = 2, 20_000  # a known word is in so many texts; the most frequent are kept
CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)  # between the groups of probabilities
QUANTILES = (0.5, 0.8, 0.9, 0.98)  # of the shares of unknown words, between their groups
PRIOR = 10  # tested answers that the probabilities of a group weigh as much as
MIN_PROFILE, MIN_NEW = 50, 30  # texts below which there is no profile, and nothing is said
Z = 3.5  # standard errors from which on a difference is no chance: one in 2,000
MIN_CHANGE = 0.1  # of a share, below which nothing is said, however many texts show it
DOUBT = 1.5  # widens the lower end by the share of texts with many unknown words
KEPT_WORDS, SHOWN_WORDS = 200, 5  # unknown words that a unit reports, and those in a sentence
Pair = tuple[float, float]  # of the new texts, and of the tested ones


@dataclass(frozen=True)
class AnswerTally:
    """What is counted of texts; `+` counts those of both."""

    grid: np.ndarray
    """Float [groups of unknown words, groups of probabilities, 3]: answers, the sum of their
    probabilities, and how many of them are right (0 where nobody knows)."""
    answers: np.ndarray  # int [classes]
    unknown: float = 0.0  # sum over texts of the share of their words that is unknown
    languages: Counter[str] = field(default_factory=Counter)  # texts by language
    words: Counter[str] = field(default_factory=Counter)  # texts by unknown word

    def __add__(self, other: "AnswerTally") -> "AnswerTally":
        return AnswerTally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def n(self) -> int:
        return int(self.answers.sum())

    def to_json(self) -> dict[str, Any]:
        return {
            "grid": np.round(self.grid, 4).tolist(),
            "answers": self.answers.tolist(),
            "unknown": round(self.unknown, 4),
            "languages": dict(self.languages),
            "words": dict(self.words.most_common(KEPT_WORDS)),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        grid, answers = np.array(found["grid"], float), np.array(found["answers"], np.int64)
        counters = Counter(found["languages"]), Counter(found["words"])
        return cls(grid, answers, found["unknown"], *counters)


@dataclass(frozen=True)
class Profile:
    """The texts that a model was tested on."""

    labels: list[str]
    words: np.ndarray  # uint32, ascending: checksums of the words of training texts
    edges: np.ndarray  # float [QUANTILES]: shares of unknown words between the groups
    shares: list[float]  # of the classes among the right answers
    tested: AnswerTally
    stars: dict[str, str] = field(default_factory=dict)  # class by stars, of a task made of them

    @classmethod
    def of_texts(
        cls,
        labels: Sequence[str],
        known: Iterable[str],
        tested: Sequence[str],
        probabilities: np.ndarray,
        right: np.ndarray,
        languages: Mapping[str, int],
        stars: Mapping[str, str] | None = None,
    ) -> Self | None:
        """Return the profile, or None where too few were `tested`; `known` are training texts,
        `right` the answers int [n], `probabilities` calibrated [n, classes].
        """
        if len(tested) < MIN_PROFILE:
            return None
        counts = Counter(word for text in known for word in {*list_words(text)})
        chosen = [word for word, n in counts.most_common(MAX_WORDS) if n >= MIN_TEXTS]
        words = np.unique(hash_words(chosen))
        edges = np.quantile(measure_unknown(tested, words)[0], QUANTILES)
        shares = (np.bincount(right, minlength=len(labels)) / len(right)).tolist()
        none = AnswerTally(np.zeros(0), np.zeros(0))
        made = cls(list(labels), words, edges, shares, none, dict(stars or {}))
        return replace(made, tested=made.count(tested, probabilities, languages, right))

    def count(
        self,
        texts: Sequence[str],
        probabilities: np.ndarray,
        languages: Mapping[str, int],
        right: np.ndarray | None = None,
    ) -> AnswerTally:
        """Return the tally of texts; probabilities [n, classes], right answers int [n]."""
        shares, unknown = measure_unknown(texts, self.words)
        answered, confidence = probabilities.argmax(1), probabilities.max(1)
        grid = np.zeros((len(QUANTILES) + 1, len(CONFIDENCES) + 1, 3))
        places = np.searchsorted(self.edges, shares), np.searchsorted(CONFIDENCES, confidence)
        is_right = np.zeros(len(texts)) if right is None else answered == right
        np.add.at(grid, places, np.stack([np.ones(len(texts)), confidence, is_right], 1))
        answers = np.bincount(answered, minlength=probabilities.shape[1])
        return AnswerTally(grid, answers, float(shares.sum()), Counter(languages), unknown)

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
        edges, tested = np.array(found["edges"], float), AnswerTally.from_json(found["tested"])
        return cls(found["labels"], words, edges, found["shares"], tested, found["stars"])


def list_words(text: str) -> list[str]:
    return WORD.findall(text[:MAX_CHARACTERS].casefold())


def hash_words(words: Iterable[str]) -> np.ndarray:
    return np.array([zlib.crc32(word.encode("utf-8", "replace")) for word in words], np.uint32)


def measure_unknown(texts: Sequence[str], known: np.ndarray) -> tuple[np.ndarray, Counter[str]]:
    """Return the share of unknown words of each text, float [n], and the texts by unknown word."""
    listed = [list_words(text) for text in texts]
    distinct = sorted({word for words in listed for word in words})
    is_known = np.isin(hash_words(distinct), known)
    unknown = {word for word, found in zip(distinct, is_known, strict=True) if not found}
    shares = [sum(map(unknown.__contains__, one)) / len(one) if one else 1.0 for one in listed]
    return np.array(shares), Counter(word for words in listed for word in {*words} & unknown)


@dataclass(frozen=True)
class Drift:
    """How new texts differ from those that a model was tested on."""

    n: int
    expected: float  # accuracy, estimated without labels, with its 95% interval
    low: float
    high: float
    tested: float  # accuracy on the tested texts, as counted
    unknown: Pair  # mean share of unknown words
    languages: dict[str, Pair]  # share of texts by language, the most frequent ones
    answers: dict[str, Pair]  # share of the answers by class
    findings: list[str]  # what a person should know; empty: the new texts are like the tested ones
    accuracy: float | None  # by labels that the file itself has
    labelled: int  # how many those are, without `trained`
    trained: int  # labels of the file that the model was trained on

    def describe(self) -> str:
        said = self.findings or ["like the reviews that the model was tested on"]
        interval = f"{self.low:.0%} to {self.high:.0%}; {self.tested:.0%} on test"
        said = [*said, f"expected accuracy {self.expected:.0%} ({interval})"]
        if self.accuracy is not None:
            said.append(f"by its own {self.labelled:,} labels {self.accuracy:.1%}")
        return "; ".join(said)


def compare_texts(
    profile: Profile, new: AnswerTally, right: int = 0, labelled: int = 0, trained: int = 0
) -> Drift | None:
    """Return how new texts differ from the tested ones; None where there are too few. Of `labelled`
    answers `right` are right; texts that the model was `trained` on are not among them.
    """
    if new.n < MIN_NEW:
        return None
    old, findings = profile.tested, list[str]()
    of, spoken = (new.n, old.n), (new.languages.total() or 1, old.languages.total() or 1)
    languages = {
        name: (count / spoken[0], old.languages[name] / spoken[1])
        for name, count in new.languages.most_common(SHOWN_WORDS)
    }
    for name, (now, then) in languages.items():
        if old.languages and is_change((now, then), spoken) and now > then:
            learnt = f"{then:.0%} of those it learnt from"
            findings.append(f"{now:.0%} of the texts are in the language {name} ({learnt})")
    unknown = new.unknown / new.n, old.unknown / old.n
    rare, usual = (float(one.grid[-1, :, 0].sum() / one.n) for one in (new, old))
    if is_change((rare, usual), of) and rare > usual:
        words = ", ".join(word for word, _ in new.words.most_common(SHOWN_WORDS))
        shares = f"{unknown[0]:.0%} of the words are unknown ({unknown[1]:.0%} on test)"
        findings.append(f"{shares}: {words}")
    both = zip((new.answers / new.n).tolist(), (old.answers / old.n).tolist(), strict=True)
    answers = dict(zip(profile.labels, both, strict=True))
    # of equal changes one that grew comes first
    changes = {name: round(now - then, 6) for name, (now, then) in answers.items()}
    name = max(changes, key=lambda one: (abs(changes[one]), changes[one]))
    now, then = answers[name]
    if is_change((now, then), of):
        findings.append(f"{now:.0%} of the answers are {name} ({then:.0%} on test)")
    expected = estimate_accuracy(profile, new, max(0.0, rare - usual))
    tested, accuracy = float(old.grid[..., 2].sum() / old.n), right / labelled if labelled else None
    return Drift(
        *(new.n, *expected, tested, unknown, languages, answers, findings),
        *(accuracy, labelled, trained),
    )


def is_change(shares: Pair, of: tuple[int, int]) -> bool:
    """Return whether two shares, of so many texts, differ by more than chance and as matters."""
    change = abs(shares[0] - shares[1])
    pooled = (shares[0] * of[0] + shares[1] * of[1] + 1) / (sum(of) + 2)
    error = sqrt(pooled * (1 - pooled) * (1 / of[0] + 1 / of[1]))
    return change >= MIN_CHANGE and change > Z * error


def estimate_accuracy(
    profile: Profile, new: AnswerTally, rare: float
) -> tuple[float, float, float]:
    """Return the expected accuracy of new texts with its 95% interval. Of the share `rare`, with
    more unknown words than tested texts have, at least as many are right as by a guess.
    """
    old, grid = profile.tested.grid, new.grid
    counts, n = grid[..., 0], grid[..., 0].sum()
    says = np.divide(grid[..., 1], counts, out=np.zeros_like(counts), where=counts > 0)
    accuracy = (old[..., 2] + PRIOR * says) / (old[..., 0] + PRIOR)
    # where all tested answers are right there is noise too
    careful = (old[..., 2] + PRIOR * says + 1) / (old[..., 0] + PRIOR + 2)
    weights, noise = counts / n, careful * (1 - careful)
    variance = (weights**2 * noise / (old[..., 0] + PRIOR)).sum() + (weights * noise).sum() / n
    margin = 1.96 * sqrt(variance + rare * 0.25 / n)
    known = float((weights * accuracy).sum())
    sure = max(known, float(grid[..., 1].sum() / n))
    guess = min(known, 1 / len(profile.labels), float(new.answers / n @ profile.shares))
    low = known - min(1.0, DOUBT * rare) * (known - guess) - margin
    high = known + rare * (sure - known + (1 - sure) / 2) + margin
    return known - rare * (known - guess) / 2, max(0.0, low), min(1.0, high)
