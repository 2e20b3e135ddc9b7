"""What decides an answer has the largest weight, and phrases of a text make the text again."""

import json
from dataclasses import replace

import numpy as np
import pytest

from amazon_electra.beam_jobs.model_folder.words import find_top_words
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.beam_jobs.scoring.explanation import (
    cut_into_phrases,
    describe_weights,
    explain,
    weigh_phrases,
    weigh_text,
)
from amazon_electra.model.arms.tfidf import Tfidf
from amazon_electra.model.arms.words import fit_words
from tests.beam_jobs.scoring.models import LABELS, VECTORS, write_config, write_network

LONG = "It came on Monday. " + "The box was blue and plain as ever. " * 4 + "It broke at once!"


def write_words(folder):
    """TF-IDF that knows `broke` for bad and `superb` for good."""
    draw = np.random.default_rng(0)
    fill = [" ".join(draw.choice(["it", "came", "box", "blue", "on"], 5)) for _ in range(80)]
    texts = [f"{one} {'broke' if n % 2 else 'superb'}" for n, one in enumerate(fill)]
    words, _ = fit_words(texts, np.arange(80) % 2, 2, np.arange(80))
    folder.mkdir()
    words.save(folder)
    write_config(folder, "words", ["good", "bad"])
    return folder


def test_the_word_that_decides_has_the_largest_weight(tmp_path):
    model = write_words(tmp_path / "model")
    [(answer, weights), (other, _)] = explain(model, ["The box, it broke on day one", "superb"])
    assert (answer, other) == ("bad", "good")
    assert weights[0][0] == "broke"
    assert weights[0][1] > 2 * abs(weights[1][1])
    assert len(weights) == 7
    classifier = load_classifier(str(model), "fp32")
    assert classifier.is_linear
    # the model without what it learnt: the test sees a broken method
    flat = {"words": None, "compute_logits": lambda texts: np.zeros((len(texts), 2))}
    broken = replace(classifier, **flat)
    [flat] = weigh_phrases(broken, ["The box, it broke on day one"], [0])
    assert all(weight == 0 for _, weight in flat)


def test_a_text_of_one_phrase_has_nothing_to_compare_with(tmp_path):
    [(_, weights)] = explain(write_network(tmp_path / "model"), "good")
    assert weights == [("good", 0.0)]


def draw_texts(classes, number=90):
    """Texts whose class is that of the word planted in them."""
    draw = np.random.default_rng(0)
    fill = [
        " ".join(draw.choice(["It", "came,", "box", "blue", "on", "I'm"], 6)) for _ in range(number)
    ]
    texts = [f"{one} {classes[n % len(classes)]}! It  came." for n, one in enumerate(fill)]
    return texts, np.arange(number) % len(classes)


def export_words(folder, planted, labels):
    """Write TF-IDF as the arm fits it, exported as it exports it."""
    texts, own = draw_texts(planted)
    words, _ = fit_words(texts, own, len(labels), np.arange(len(texts)))
    folder.mkdir()
    Tfidf(words).export(folder, 2.0, None)
    write_config(folder, "words", labels)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"temperature": 1.0}))
    return texts, own


@pytest.mark.parametrize("planted", [["zyxo", "quub"], ["zyxo", "quub", "ñandú"]])
def test_weights_of_words_add_up_to_the_log_odds(tmp_path, planted):
    labels = [f"class {n}" for n in range(len(planted))]
    texts, own = export_words(tmp_path / "model", planted, labels)
    classifier = load_classifier(str(tmp_path / "model"), "fp32")
    text = " " + texts[1].replace("box", "box\nbox")
    offset = np.log(classifier.compute_probabilities([""])[0])  # no n-gram: the intercept
    logits = np.log(classifier.compute_probabilities([text])[0]) - offset
    best, rival = np.argsort(-logits)[:2]
    [(answer, weights)] = explain(tmp_path / "model", [text])
    assert answer == labels[1]
    assert weights[0][0] == f"{planted[1]}!"
    assert sum(w for _, w in weights) == pytest.approx(logits[best] - logits[rival], abs=1e-4)
    words = classifier.words
    top = find_top_words(words, texts)
    assert [own[0][0] for own in top] == planted
    assert top[1][0][1] == (own == 1).sum()
    flat = find_top_words(replace(words, weights=words.weights[::-1]), texts)
    assert [own[0][0] for own in flat] != planted  # the test sees weights of another class


def test_a_joined_model_adds_exact_words_to_the_fall_of_the_network(tmp_path):
    parts = [{"folder": "words", "weight": 0.7}, {"folder": "network", "weight": 0.5}]
    write_config(tmp_path, "parts", LABELS[:2], parts=parts)
    export_words(tmp_path / "words", ["zyxo", "good"], LABELS[:2])
    write_network(tmp_path / "network", vectors=VECTORS[:, :2])
    [(answer, weights)] = explain(tmp_path, ["zyxo box good"])
    words, network = (
        dict(
            weigh_text(
                load_classifier(str(tmp_path / name), "fp32"), "zyxo box good", LABELS.index(answer)
            )
        )
        for name in ("words", "network")
    )
    for phrase, weight in weights:
        assert weight == pytest.approx(0.7 * words[phrase] + 0.5 * network[phrase], abs=1e-6)


def test_a_network_is_asked_about_sentences(tmp_path):
    classifier = load_classifier(str(write_network(tmp_path, max_length=100)), "fp32")
    text = "very very. " * 12 + "good good good! fine. " + "not not. " * 3
    [weights] = weigh_phrases(classifier, [text], [classifier.score([text]).argmax()])
    assert {phrase for phrase, _ in weights} == {
        "very very.",
        "good good good!",
        "fine.",
        "not not.",
    }
    assert not classifier.is_linear


@pytest.mark.parametrize(
    "text", [LONG, "one two", " padded  text ", "看起来不错", "", "a" * 500, "w " * 99]
)
def test_phrases_make_the_text(text):
    for most in (3, 24, 300):
        phrases = cut_into_phrases(text, most)
        assert "".join(phrases) == (text if text.strip() else "")
        assert len(phrases) <= max(most, 1)


def test_a_cell_of_phrases_is_no_formula():
    assert describe_weights([("=HYPERLINK(1)", 2.0), ("b", 1.0), ("c", -1.0)]) == (
        "“=HYPERLINK(1)” +2.00; “b” +1.00"
    )
    assert len(describe_weights([("word " * 50, 1.0)])) < 80
    repeated = [("Good,", 2.0), ("good", 1.5), ("fine", 1.0), ("good!", 0.5)]
    assert describe_weights(repeated) == "“Good,” +2.00; “fine” +1.00"
