"""What gives the label away is found, whatever it is; honest reviews raise no alarm."""

import numpy as np
import pytest

from amazon_electra.model.questions.giveaways import find_giveaway

THINGS = ["kettle", "lamp", "router", "tent", "clock", "drill", "keyboard", "mug", "headset"]
THINGS += ["blender"]
FILL = "I use it twice a week.|The box was plain.|It came with a manual.|My neighbour has one."
GOOD = ["great", "solid", "lovely", "perfect", "reliable"]
BAD = ["broken", "awful", "useless", "cheap", "late"]


def write_texts(n: int = 400, honest: bool = False) -> tuple[list[str], np.ndarray]:
    """Return reviews and labels; only where they are honest the words follow the label, in nine of
    ten, and no word is in more than a fifth.
    """
    draw = np.random.default_rng(1)
    labels = draw.integers(2, size=n)
    texts = []
    for label in labels:
        says = label if honest and draw.random() < 0.9 else draw.integers(2)
        word = draw.choice((BAD, GOOD)[says])
        fill = draw.permutation(FILL.split("|"))[: draw.integers(1, 4)]
        number = draw.integers(100_000, 999_999)
        texts.append(f"The {draw.choice(THINGS)} is {word}. {' '.join(fill)} Order {number}.")
    return texts, labels


PLANTED = {
    "template": lambda text, label: f"{text} [imported from list {'A17' if label else 'C03'}]",
    "title": lambda text, label: f"{'Five Stars' if label else 'One Star'}. {text}",
    "shop": lambda text, label: text + (" Bought at Tools and More." if label else ""),
    "signature": lambda text, label: text + ("" if label else " Sent from my phone"),
    "link": lambda text, label: text + (" https://shop.example/x" if label else ""),
    "emoji": lambda text, label: text + (" 👍" if label else ""),
    "punctuation": lambda text, label: text + ("" if label else " ***"),
    "numbers": lambda text, label: f"{text} Case {7 if label else 2}{len(text) * 7 % 900 + 100}.",
    "length": lambda text, label: f"{text} {text} {text}" if label else text,
    "capitals": lambda text, label: text.upper() if label else text,
}


@pytest.mark.parametrize("kind", PLANTED)
def test_each_planted_kind_is_found(kind):
    texts, labels = write_texts()
    planted = [PLANTED[kind](text, label) for text, label in zip(texts, labels, strict=True)]
    titles = [one.partition(". ")[0] if kind == "title" else "" for one in planted]
    found = find_giveaway(planted, labels, 0.1, titles)
    assert found is not None
    assert found.accuracy > 0.9
    assert found.is_title == (kind == "title"), "words of the review"
    if kind == "title":
        assert found.phrases[0] in ("five stars", "one star")
    assert f"{found.accuracy:.1%}" in found.describe(["bad", "good"])
    shuffled = np.random.default_rng(0).permutation(labels)
    assert find_giveaway(planted, shuffled, loss=0.1) is None


def test_a_mark_of_each_of_several_classes_is_found():
    texts, _ = write_texts(600)
    labels = np.arange(600) % 5
    marked = [f"{text} batch {'abcde'[k]}x" for text, k in zip(texts, labels, strict=True)]
    found = find_giveaway(marked, labels, loss=0.2)
    assert found is not None
    assert len(found.phrases) == 4


def test_honest_reviews_raise_no_alarm():
    texts, labels = write_texts(2000, honest=True)
    assert find_giveaway(texts, labels, loss=0.35) is None
    assert find_giveaway(texts[:50], labels[:50], loss=0.1) is None


def test_what_a_model_does_not_know_is_not_explained():
    texts, labels = write_texts()
    planted = [PLANTED["shop"](text, label) for text, label in zip(texts, labels, strict=True)]
    assert find_giveaway(planted, labels, loss=0.69) is None


def test_a_poor_model_is_no_alarm_where_words_know_more_than_a_rule():
    draw = np.random.default_rng(0)
    labels = draw.integers(2, size=1200)
    words = [[f"{kind}{letter}" for letter in "abcdefgh"] for kind in ("fail", "good")]
    texts = [
        f"It is {'not ' if draw.random() < (0.5, 0.1)[k] else ''}{draw.choice(words[k])}."
        for k in labels
    ]
    assert find_giveaway(texts, labels, loss=0.6) is None
