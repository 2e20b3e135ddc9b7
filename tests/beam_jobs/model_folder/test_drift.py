"""Drift is said, like-for-like months are silent, and intervals contain the true accuracy."""

import json
from functools import reduce
from operator import add

import numpy as np

from amazon_electra.beam_jobs.model_folder.drift import AnswerTally, Profile, compare_texts

WORDS = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
NEW_WORDS = [f"{a}{b}{c}x" for a in "pqvwz" for b in "aeiou" for c in "lmnrst"]
LABELS = ["bad", "good"]


def draw_reviews(draw, n, words=WORDS):
    """Return texts, calibrated probabilities [n, 2] and true labels; words have Zipf's shares."""
    shares = 1 / np.arange(1, len(words) + 1)
    shares /= shares.sum()
    texts = [" ".join(draw.choice(words, draw.integers(5, 30), p=shares)) for _ in range(n)]
    positive = 1 / (1 + np.exp(-draw.normal(0.5, 2.5, n)))
    probabilities = np.stack([1 - positive, positive], 1)
    return texts, probabilities, (draw.random(n) < positive).astype(int)


def make_profile(seed=0, n=400):
    draw = np.random.default_rng(seed)
    known, _, _ = draw_reviews(draw, 1000)
    texts, probabilities, right = draw_reviews(draw, n)
    return Profile.of_texts(LABELS, known, texts, probabilities, right, {"en": 1000})


def test_like_for_like_months_are_silent_and_their_accuracy_is_expected():
    profile, is_inside = make_profile(), []
    for month in range(20):
        draw = np.random.default_rng(100 + month)
        texts, probabilities, right = draw_reviews(draw, 200)
        found = compare_texts(profile, profile.count(texts, probabilities, {"en": 200}))
        assert found.findings == []
        is_inside.append(found.low <= (probabilities.argmax(1) == right).mean() <= found.high)
        assert found.high - found.low < 0.2
    assert sum(is_inside) >= 18


def test_new_words_languages_and_classes_are_said():
    profile, draw = make_profile(), np.random.default_rng(7)
    texts, probabilities, right = draw_reviews(draw, 200)
    foreign, _, _ = draw_reviews(draw, 200, NEW_WORDS)
    half = [*texts[:100], *foreign[:100]]
    # of what it cannot read it knows nothing, and says that it does
    probabilities[100:] = [0.1, 0.9]
    is_right = probabilities.argmax(1) == right
    is_right[100:] = draw.random(100) < 0.5
    found = compare_texts(profile, profile.count(half, probabilities, {"en": 100, "es": 100}))
    said = " ".join(found.findings)
    assert "50% of the texts are in the language es" in said
    assert 0.45 < found.unknown[0] < 0.55
    assert max(NEW_WORDS, key=lambda word: sum(word in text for text in foreign)) in said
    assert found.low <= is_right.mean() <= found.high
    answers = np.tile([0.1, 0.9], (200, 1))
    only = compare_texts(profile, profile.count(texts, answers, {"en": 200}))
    assert [one for one in only.findings if "100% of the answers are good" in one]


def test_the_interval_holds_where_unlike_texts_are_right_by_chance():
    profile, is_inside, widths = make_profile(), [], []
    for seed in range(30):
        draw = np.random.default_rng(200 + seed)
        texts, probabilities, right = draw_reviews(draw, 200)
        unlike = draw.integers(40, 201)
        texts[:unlike] = draw_reviews(draw, unlike, NEW_WORDS)[0]
        is_right = probabilities.argmax(1) == right
        is_right[:unlike] = draw.random(unlike) < 0.5
        found = compare_texts(profile, profile.count(texts, probabilities, {"en": 200}))
        is_inside.append(found.low <= is_right.mean() <= found.high)
        widths.append(found.high - found.low)
    assert sum(is_inside) >= 28
    assert np.mean(widths) < 0.6


def test_a_profile_and_a_tally_survive_json_and_tallies_of_parts_add_up():
    profile, draw = make_profile(), np.random.default_rng(8)
    again = Profile.from_json(json.dumps(profile.to_json()))
    texts, probabilities, _ = draw_reviews(draw, 90)
    texts[0] = "看起来不错"
    whole = profile.count(texts, probabilities, {"en": 90})
    parts = [
        again.count(texts[a:b], probabilities[a:b], {"en": b - a})
        for a, b in ((0, 30), (30, 60), (60, 90))
    ]
    parts = [AnswerTally.from_json(json.loads(json.dumps(one.to_json()))) for one in parts]
    found = reduce(add, parts)
    assert found.n == 90
    assert found.words == whole.words
    assert compare_texts(again, found).describe() == compare_texts(profile, whole).describe()
    assert compare_texts(profile, profile.count(texts[:9], probabilities[:9], {})) is None
