"""Is it being fooled? A rule of a few phrases as a baseline: a template, the name of a list or a
shop, an id, "Five Stars", or the length alone. Where such a rule holds most of what the model knows
of the labels, it has learnt how the dump was put together, and not what the reviews say.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amazon_electra.beam_jobs.model_folder.probabilities import take_logarithms, take_probabilities

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
ROUNDS = 8
"""Rounds of masking: where one mark is gone, another may be left."""
SENTENCE = 15
"""Words of a sentence that is masked as a whole."""
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
    masked_accuracy: float
    """Cross-validated accuracy of TF-IDF with the phrases masked."""
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
            f"{why}; such a rule alone is right in {self.accuracy:.1%} and has "
            f"{self.explained:.0%} of what the model knows. Without it the accuracy is about "
            f"{self.masked_accuracy:.0%} (most frequent class: {self.majority:.0%})."
            f"{remedy}"
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
    first = choose_rule(tokens, own)
    explained, accuracy = measure_rule(first, own)
    if explained >= MAX_SHARE * gain:
        # A model with class weights, or a poor one, may know less than words show.
        gain = max(gain, cross_validate_words(tokens, own)[0])
    if explained < MAX_SHARE * gain:
        return None
    masked, rule = tokens, first
    for _ in range(ROUNDS):
        masked = [mask(words, rule.phrases, rule.shortest) for words in masked]
        rule = choose_rule(masked, own)
        if measure_rule(rule, own)[0] < MAX_SHARE * gain:
            break
    places = range(len(classes))
    return Giveaway(
        phrases=first.shown,
        shares=[[float(one[own == k].mean()) for k in places] for one in first.columns],
        explained=min(1.0, explained / gain),
        accuracy=accuracy,
        masked_accuracy=cross_validate_words(masked, own)[1],
        majority=float(shares.max()),
        is_title=bool(titles) and first.are_titles([titles[i] for i in chosen]),
    )


def list_phrases(words: Sequence[str]) -> set[str]:
    """Return the phrases of a text: runs of MAX_WORDS words at most in small letters, and of words
    with digits what they begin with.
    """
    small = [word.lower() for word in words]
    found = {
        " ".join(small[i : i + n])
        for n in range(1, MAX_WORDS + 1)
        for i in range(len(small) - n + 1)
    }
    return found | {shape for word in small if (shape := shape_number(word))}


def shape_number(word: str) -> str:
    """Return `8…(6)` for 863595 and others like it; empty for words without digits."""
    return f"{word[0]}…({len(word)})" if any(map(str.isdigit, word)) and len(word) > 1 else ""


@dataclass(frozen=True)
class Rule:
    """The group of each review, by the first of the phrases that it has."""

    phrases: list[str]
    """The shortest of those that the same reviews have."""
    shown: list[str]
    """The one of those that says most to a reader."""
    columns: list[np.ndarray]
    """Float [n] of each phrase: whether a review has it; or its length or share of capitals."""
    groups: np.ndarray
    """int [n]."""
    shortest: int = 0
    """Words of the shortest tenth."""

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
        """Return whether each phrase is the title of most reviews that have it, in words without
        digits.
        """
        short = [" ".join(re.findall(r"\w+", title.lower())) for title in titles]
        for phrase, column in zip(self.shown, self.columns, strict=True):
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
        groups, shortest = np.searchsorted(edges, values), int(np.quantile(lengths, 0.1))
        rules.append(Rule([name], [name], [values], groups, shortest))
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
    rule = Rule([], [], [], np.zeros(len(tokens), np.int64))

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
        rule.phrases.append(min(same, key=lambda name: (name.count(" "), name)))
        rule.shown.append(max(same, key=rank_for_readers))
        rule.columns.append(column)
    return rule


def measure_rule(rule: Rule, labels: np.ndarray) -> tuple[float, float]:
    """Return the information and the accuracy of a rule on the second half of the reviews; the
    class of each group is the most frequent one of the first half.
    """
    half = len(labels) // 2
    table = np.zeros((int(rule.groups.max()) + 1, int(labels.max()) + 1))
    np.add.at(table, (rule.groups[:half], labels[:half]), 1)
    said = table.argmax(1)[rule.groups[half:]]
    information = rule.compute_information(slice(half, None), labels)
    return information, float(np.mean(said == labels[half:]))


def mask(words: Sequence[str], phrases: Sequence[str], shortest: int) -> list[str]:
    """Return the words without the sentences that have one of the phrases; without the phrase alone
    where a sentence is longer than SENTENCE. Of LENGTH the first words, as many as the shortest
    tenth of the texts has; of CAPITALS all in small letters.
    """
    if phrases == [LENGTH]:
        return list(words[:shortest])
    small = [word.lower() for word in words]
    if phrases == [CAPITALS]:
        return small
    ends = [i + 1 for i, word in enumerate(small) if word[0] in ".!?…"]
    starts, ends = [0, *ends], [*ends, len(small)]
    keeps = [True] * len(small)
    for phrase in phrases:
        parts = phrase.split(" ")
        for i in range(len(small)):
            if small[i : i + len(parts)] == parts or shape_number(small[i]) == phrase:
                number = bisect_right(starts, i) - 1
                first, last = starts[number], ends[number]
                if last - first > SENTENCE:
                    first, last = i, i + len(parts)
                keeps[first:last] = [False] * (last - first)
    return [word for word, is_kept in zip(words, keeps, strict=True) if is_kept]


def cross_validate_words(
    tokens: Sequence[Sequence[str]], labels: np.ndarray
) -> tuple[float, float]:
    """Return the gain over the class frequencies, nats a review, and the accuracy of TF-IDF with
    logistic regression over three folds.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline

    shares = np.bincount(labels) / len(labels)
    if np.bincount(labels).min() < 3:
        return 0.0, float(shares.max())
    words = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    model = make_pipeline(words, LogisticRegression(C=4, max_iter=200))
    texts = [" ".join(one) or "⟨empty⟩" for one in tokens]
    probabilities = cross_val_predict(model, texts, labels, cv=3, method="predict_proba")
    own = take_logarithms(take_probabilities(probabilities, labels))
    gain = float(own.mean() - shares @ np.log(shares))
    return gain, float(np.mean(probabilities.argmax(1) == labels))
