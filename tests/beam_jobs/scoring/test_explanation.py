"""What decides an answer has the largest weight, and phrases of a text make the text again."""

from dataclasses import replace

import numpy as np
import pytest

from amazon_electra.beam_jobs.model_folder.words import Words, find_top_words
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.beam_jobs.scoring.explanation import (
    cut_into_phrases,
    describe_weights,
    explain,
    weigh_phrases,
)
from amazon_electra.model.arms.tfidf import fit_words
from tests.beam_jobs.scoring.models import write_config, write_network

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
    # the model without what it learnt: the test sees a broken method
    broken = replace(classifier, compute_logits=lambda texts: np.zeros((len(texts), 2)))
    flat = weigh_phrases(broken, "The box, it broke on day one", 0)
    assert all(weight == 0 for _, weight in flat)


def test_a_text_of_one_phrase_has_nothing_to_compare_with(tmp_path):
    [(_, weights)] = explain(write_network(tmp_path / "model"), "good")
    assert weights == [("good", 0.0)]


def test_the_words_of_a_class_are_those_planted_in_it(tmp_path):
    words = Words.load((write_words(tmp_path / "model") / "words.npz").read_bytes())
    texts = ["It came, it broke!"] * 4 + ["A superb box", "on superb day", "superb"]
    good, bad = find_top_words(words, texts)
    assert [one[0][:2] for one in (good, bad)] == [("superb", 3), ("broke", 4)]
    swapped = find_top_words(replace(words, weights=words.weights[::-1]), texts)
    assert swapped[0][0][0] == "broke"  # the test sees weights of another class


def test_a_network_is_asked_about_sentences(tmp_path):
    classifier = load_classifier(str(write_network(tmp_path, max_length=100)), "fp32")
    text = "very very. " * 12 + "good good good! fine. " + "not not. " * 3
    weights = weigh_phrases(classifier, text, classifier.score([text]).argmax())
    assert {phrase for phrase, _ in weights} == {
        "very very.",
        "good good good!",
        "fine.",
        "not not.",
    }


@pytest.mark.parametrize(
    "text", [LONG, "one two", " padded  text ", "看起来不错", "", "a" * 500, "w " * 99]
)
def test_phrases_make_the_text(text):
    for most in (3, 24):
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
