"""Languages of reviews are told apart where they have words enough."""

from amazon_electra.beam_jobs.core.languages import count_languages

GERMAN = "Der Deckel war nach einer Woche kaputt, sehr schade."
ENGLISH = "The lid broke after one week, what a pity."
JAPANESE = "蓋がすぐに壊れました。とても残念です。"


def test_languages_of_texts_with_words_enough_are_counted():
    texts = [ENGLISH, GERMAN, GERMAN, JAPANESE, "muy bien", ""]
    assert list(count_languages(texts).items()) == [("de", 2), ("en", 1), ("ja", 1)]
