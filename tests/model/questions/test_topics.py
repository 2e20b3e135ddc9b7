"""Planted topics are found, with their words, their classes and their months."""

import numpy as np

from amazon_electra.model.questions.topics import MIN_SENTENCES, choose_sentences, find_topics

PLANTED = {
    "battery": (["battery", "charge", "drains"], 0.8),
    "sound": (["speaker", "loud", "bass"], 0.3),
    "price": (["cheap", "price", "worth"], 0.1),
}
"""Words of each topic, and the share of negative reviews."""


def draw_sentences(shuffle=False):
    draw = np.random.default_rng(1)
    names = draw.choice(list(PLANTED), 600)
    fill = ["kettle", "came", "monday", "neighbour", "box", "yellow", "very"]
    sentences = [" ".join([*draw.choice(fill, 4), *draw.choice(PLANTED[n][0], 2)]) for n in names]
    classes = ["negative" if draw.random() < PLANTED[n][1] else "positive" for n in names]
    months = ["2026-05" if n == "battery" else f"2026-0{1 + i % 4}" for i, n in enumerate(names)]
    centres = {name: draw.normal(size=40) for name in PLANTED}
    states = np.stack([centres[name] for name in names]) + draw.normal(0, 0.8, (600, 40))
    if shuffle:
        draw.shuffle(states)
    return names, sentences, states, classes, months


def test_planted_topics_have_their_words_classes_and_months():
    names, *given = draw_sentences()
    found = find_topics(*given)
    planted = {word for words, _ in PLANTED.values() for word in words}
    for topic in found:
        [name] = [n for n, (words, _) in PLANTED.items() if {*topic.words} <= {*words}]
        assert abs(topic.classes["negative"] - PLANTED[name][1]) < 0.2
        assert (topic.month == "2026-05") == (name == "battery")
        assert topic.sentences >= 20
    assert {word for topic in found for word in topic.words} == planted
    assert sum(topic.sentences for topic in found) > 0.9 * len(names)
    first = found[0].describe()
    assert "negative of" in first or "positive of" in first


def measure_spread(found):
    shares = [topic.classes["negative"] for topic in found]
    return max(shares) - min(shares)


def test_shuffled_states_have_no_topic_of_its_own():
    """The test above sees a broken method."""
    assert measure_spread(find_topics(*draw_sentences()[1:])) > 0.5
    assert measure_spread(find_topics(*draw_sentences(shuffle=True)[1:])) < 0.4


def test_few_sentences_have_none():
    _, sentences, states, classes, _ = draw_sentences()
    few = MIN_SENTENCES - 1
    assert find_topics(sentences[:few], states[:few], classes[:few]) == []
    assert choose_sentences([["Too short.", "This one is long enough."], []]) == [
        (0, "This one is long enough.")
    ]
