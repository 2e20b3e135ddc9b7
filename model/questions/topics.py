"""What are the reviews about? Their sentences in groups of alike states of the encoder (k-means),
each named by its words (class TF-IDF, Grootendorst 2022, arXiv 2203.05794), with the classes of the
reviews and their months.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAX_SENTENCES, MIN_SENTENCES = 1_500, 200
"""That are grouped, 5 CPU ms each for their states; below the second nothing is."""
SENTENCES_OF_TOPIC, MAX_TOPICS, MIN_TOPIC = 60, 15, 20
"""Of a topic on average; how many topics at most; sentences of one that is shown."""
MIN_WORDS, MIN_WITH_WORD = 3, 3
"""Words of a sentence, and sentences of all that have a word of a name."""
NAME_WORDS = 3
COMPONENTS = 30
"""Of the states, by which sentences are grouped."""


@dataclass(frozen=True)
class Topic:
    """Sentences about one thing."""

    words: list[str]
    """The most typical first."""
    sentences: int
    classes: dict[str, float]
    """Share of the sentences by the class of their review."""
    typical: str
    """Class that is more frequent here than elsewhere."""
    elsewhere: float
    """Its share of all sentences."""
    month: str
    """With most of the sentences whose review has one; empty where none has."""
    in_month: int

    def describe(self) -> str:
        """Return a clause such as `battery: 82% negative of 312 sentences`."""
        share = self.classes[self.typical]
        text = (
            f"{', '.join(self.words)}: {share:.0%} {self.typical} of {self.sentences:,} sentences"
        )
        text += f" ({self.elsewhere:.0%} of all)"
        return text + (f", most in {self.month} ({self.in_month:,})" if self.month else "")


def choose_sentences(reviews: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Return some sentences of all reviews, each with the number of its review."""
    every = [
        (number, one)
        for number, sentences in enumerate(reviews)
        for one in sentences
        if len(one.split()) >= MIN_WORDS
    ]
    order = np.random.default_rng(0).permutation(len(every))[:MAX_SENTENCES]
    return [every[place] for place in sorted(order.tolist())]


def find_topics(
    sentences: Sequence[str],
    states: np.ndarray,
    classes: Sequence[str],
    months: Sequence[str | None] = (),
) -> list[Topic]:
    """Return the topics of sentences, those that differ most from all in their classes first; none
    of fewer than MIN_SENTENCES. `states` is [sentences, width]; `classes` and `months` are those of
    each sentence's review.
    """
    if len(sentences) < MIN_SENTENCES:
        return []
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import StandardScaler, normalize

    size = min(COMPONENTS, *(edge - 1 for edge in states.shape))
    reduced = PCA(size, random_state=0).fit_transform(StandardScaler().fit_transform(states))
    number = min(MAX_TOPICS, max(2, len(sentences) // SENTENCES_OF_TOPIC))
    groups = KMeans(number, n_init=3, random_state=0).fit_predict(normalize(reduced))
    vectorizer = CountVectorizer(
        stop_words="english", token_pattern=r"[^\W\d_]{3,}", min_df=MIN_WITH_WORD, binary=True
    )
    try:
        counts = vectorizer.fit_transform(sentences)
    except ValueError:  # no word is in so many sentences
        return []
    words = vectorizer.get_feature_names_out()
    of_group = np.stack([np.asarray(counts[groups == g].sum(0))[0] for g in range(number)])
    share = of_group / np.maximum(of_group.sum(1, keepdims=True), 1)
    rarity = np.log1p(of_group.sum() / number / np.maximum(of_group.sum(0), 1))
    names, overall, topics = sorted({*classes}), Counter(classes), list[Topic]()
    for g in range(number):
        places = np.flatnonzero(groups == g).tolist()
        best = np.argsort(-share[g] * rarity, kind="stable")[:NAME_WORDS]
        if len(places) < MIN_TOPIC or not of_group[g].any():
            continue
        own = Counter(classes[place] for place in places)
        shares = {name: own[name] / len(places) for name in names}
        all_shares = {name: overall[name] / len(classes) for name in names}
        typical = max(names, key=lambda name: shares[name] - all_shares[name])
        found = Counter(month for place in places if months and (month := months[place]))
        month, count = found.most_common(1)[0] if found else ("", 0)
        named = [str(words[i]) for i in best if of_group[g, i]]
        about = typical, all_shares[typical], month, count
        topics.append(Topic(named, len(places), shares, *about))
    topics.sort(key=lambda one: one.elsewhere - one.classes[one.typical])
    return topics
