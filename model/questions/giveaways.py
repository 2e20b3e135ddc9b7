"""Is it being fooled? A rule of a few phrases as a baseline: a template, the name of a list or a
shop, an id, "Five Stars", or the length alone. Where such a rule holds most of what the model knows
of the labels, it has learnt how the dump was put together, and not what the reviews say.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amazon_electra.beam_jobs.model_folder.probabilities import take_logarithms

TOKEN = re.compile(r"\w+|[^\w\s]+")
MAX_WORDS = 3
"""Words of a phrase."""
MAX_TEXTS = 2_000
"""Texts that are looked at."""
MIN_TEXTS = 100
"""With fewer texts nothing is shown."""
MIN_GAIN = 0.05
"""Nats that a model must know of a label: of less, a rule may hold most by chance."""
MAX_SHARE = 0.5
"""Share of a model's gain from which on a rule explains most of it."""
MIN_TITLES = 0.5
"""Share of the reviews with a phrase whose whole title it is: from then on it is their words."""
LENGTH, CAPITALS = "⟨the number of words⟩", "⟨capitals⟩"


@dataclass(frozen=True)
class Giveaway:
    """A rule that explains most of what a model knows."""

    phrases: list[str]
    """One for most classes; or LENGTH or CAPITALS."""
    shares: list[list[float]]
    """[phrase, class]: share of the class's reviews that have it; for LENGTH and CAPITALS the mean
    number and share."""
    explained: float
    """Share of the model's gain over the class frequencies, in log-loss, that the rule has too."""
    accuracy: float
    """Accuracy of the rule on reviews that did not choose it."""
    majority: float
    """Accuracy of the most frequent class."""
    is_title: bool = False
    """Whether the phrases are titles that reviewers write, such as "Five Stars"."""

    def describe(self, classes: Sequence[str]) -> str:
        """Return a sentence for the report, the terminal and the registry."""
        shown = self.phrases[0]
        what = {LENGTH: "the length of a text", CAPITALS: "the share of capitals"}.get(shown)
        form = "{} {:.0f} words" if shown == LENGTH else "{} {:.0%}"
        of_classes = map(form.format, classes, self.shares[0])
        why = f"{what or f'one phrase, `{shown}`,'} decides ({', '.join(of_classes)})"
        remedy = " `--corpus.title false` leaves the titles out." if self.is_title else ""
        return (
            f"{why}; such a rule alone is right in {self.accuracy:.1%} (most frequent class: "
            f"{self.majority:.0%}) and has {self.explained:.0%} of what the model knows.{remedy}"
        )


def find_giveaway(
    texts: Sequence[str], labels: np.ndarray, loss: float, titles: Sequence[str] = ()
) -> Giveaway | None:
    """Return the rule that explains most of what a model gains, or None. `labels` int [n]; `loss`
    is the model's mean log-loss on reviews it has not read; `titles` are those of the texts, empty
    where one has none. A rule is chosen on half of at most MAX_TEXTS reviews.
    """
    chosen = np.random.default_rng(0).permutation(len(texts))[:MAX_TEXTS]
    tokens = [TOKEN.findall(texts[i]) for i in chosen]  # as written
    own = np.asarray(labels)[chosen]
    classes, own = np.unique(own, return_inverse=True)
    shares = np.bincount(own) / max(1, len(own))
    gain = float(-(shares * np.log(shares)).sum()) - loss
    if len(own) < MIN_TEXTS or gain < MIN_GAIN or len(classes) < 2:
        return None
    rule = choose_rule(tokens, own)
    explained, accuracy = measure_rule(rule, own)
    if explained >= MAX_SHARE * gain:
        # A model with class weights, or a poor one, may know less than words show.
        gain = max(gain, cross_validate_words(tokens, own))
    if explained < MAX_SHARE * gain:
        return None
    places = range(len(classes))
    return Giveaway(
        phrases=rule.phrases,
        shares=[[float(one[own == k].mean()) for k in places] for one in rule.columns],
        explained=min(1.0, explained / gain),
        accuracy=accuracy,
        majority=float(shares.max()),
        is_title=bool(titles) and rule.are_titles([titles[i] for i in chosen]),
    )


def list_phrases(words: Sequence[str]) -> set[str]:
    """Return the phrases of a text: runs of MAX_WORDS words at most in small letters, and of words
    with digits how they begin and how long they are: `8…(6)` of 863595.
    """
    small = [word.lower() for word in words]
    found = {
        " ".join(small[i : i + n])
        for n in range(1, MAX_WORDS + 1)
        for i in range(len(small) - n + 1)
    }
    numbers = (word for word in small if len(word) > 1 and any(map(str.isdigit, word)))
    return found | {f"{word[0]}…({len(word)})" for word in numbers}


@dataclass(frozen=True)
class Rule:
    """The group of each review, by the first of the phrases that it has."""

    phrases: list[str]
    """Of those that the same reviews have the one that says most to a reader."""
    columns: list[np.ndarray]
    """Float [n] of each phrase: whether a review has it; or its length or share of capitals."""
    groups: np.ndarray
    """int [n]."""

    def compute_information(self, part: slice, labels: np.ndarray) -> float:
        """Return the information, nats a review, that the groups of a part give of its labels; with
        Miller's and Madow's correction, since groups of a few reviews seem to say something.
        """
        from sklearn.metrics import mutual_info_score

        groups, labels = self.groups[part], labels[part]
        together = len({*zip(groups.tolist(), labels.tolist(), strict=True)})
        excess = together - len(np.unique(groups)) - len(np.unique(labels)) + 1
        return float(mutual_info_score(groups, labels)) - max(0, excess) / (2 * len(labels))

    def are_titles(self, titles: Sequence[str]) -> bool:
        """Return whether each phrase, without digits, is the title of most reviews with it."""
        short = [" ".join(re.findall(r"\w+", title.lower())) for title in titles]
        for phrase, column in zip(self.phrases, self.columns, strict=True):
            own = [title for title, has in zip(short, column, strict=True) if has]
            are_words = all(map(str.isalpha, phrase.split(" ")))
            if not are_words or own.count(phrase) < MIN_TITLES * len(own):
                return False
        return True


def choose_rule(tokens: Sequence[Sequence[str]], labels: np.ndarray) -> Rule:
    """Return the rule that says most of the labels of the first half of the reviews: a phrase for
    each class but one, chosen one after the other; or the length; or the capitals.
    """
    half = len(labels) // 2
    lengths = np.array([len(words) for words in tokens], float)
    joined = ["".join(words) for words in tokens]
    capitals = np.array([sum(map(str.isupper, text)) / max(1, len(text)) for text in joined])
    rules = [choose_phrases(tokens, labels, half)] if any(tokens) else []
    for name, values in ((LENGTH, lengths), (CAPITALS, capitals)):
        edges = np.unique(np.quantile(values[:half], np.arange(0.1, 1, 0.1)))
        rules.append(Rule([name], [values], np.searchsorted(edges, values)))
    return max(rules, key=lambda rule: rule.compute_information(slice(half), labels))


def choose_phrases(tokens: Sequence[Sequence[str]], labels: np.ndarray, half: int) -> Rule:
    """Return the list of phrases: each is the one that is least independent (chi-squared) of the
    labels of the reviews of the first half without the phrases before it.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.feature_selection import chi2

    vectorizer = CountVectorizer(analyzer=list_phrases, binary=True, dtype=np.float32)
    has = vectorizer.fit_transform(tokens).tocsc()
    names = vectorizer.get_feature_names_out().tolist()
    totals = np.asarray(has.sum(0)).ravel()
    rule = Rule([], [], np.zeros(len(tokens), np.int64))

    def rank_for_readers(phrase: str) -> tuple[bool, int]:  # words only, and many, say most
        return all(map(str.isalnum, phrase.split(" "))), phrase.count(" ")

    for number in range(1, int(labels.max()) + 1):
        rows = np.flatnonzero(rule.groups[:half] == 0)
        if len(np.unique(labels[rows])) < 2:
            break
        best = int(np.nan_to_num(chi2(has[rows], labels[rows])[0]).argmax())
        column = has[:, [best]].toarray().ravel()
        rule.groups[(rule.groups == 0) & (column > 0)] = number
        is_same = (has.T @ column == totals[best]) & (totals == totals[best])
        same = [names[i] for i in np.flatnonzero(is_same)]
        rule.phrases.append(max(same, key=rank_for_readers))
        rule.columns.append(column)
    return rule


def measure_rule(rule: Rule, labels: np.ndarray) -> tuple[float, float]:
    """Return information and accuracy on the second half of groups labelled by the first half."""
    half = len(labels) // 2
    table = np.zeros((int(rule.groups.max()) + 1, int(labels.max()) + 1))
    np.add.at(table, (rule.groups[:half], labels[:half]), 1)
    said = table.argmax(1)[rule.groups[half:]]
    information = rule.compute_information(slice(half, None), labels)
    return information, float(np.mean(said == labels[half:]))


def cross_validate_words(tokens: Sequence[Sequence[str]], labels: np.ndarray) -> float:
    """Return the gain over class frequencies, nats a review, of TF-IDF over three folds."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline

    shares = np.bincount(labels) / len(labels)
    if np.bincount(labels).min() < 3:
        return 0.0
    words = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=4, max_iter=200))
    texts = [" ".join(one) or "⟨empty⟩" for one in tokens]
    probabilities = cross_val_predict(model, texts, labels, cv=3, method="predict_proba")
    own = take_logarithms(probabilities[np.arange(len(labels)), labels])
    return float(own.mean() - shares @ np.log(shares))
