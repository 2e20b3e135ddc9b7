"""Languages of reviews are told apart where they have words enough."""

from amazon_electra.beam_jobs.core.languages import count_languages, find_language

GERMAN = "Der Deckel war nach einer Woche kaputt, sehr schade."
ENGLISH = "The lid broke after one week, what a pity."
JAPANESE = "蓋がすぐに壊れました。とても残念です。"


def test_languages_are_counted_the_most_frequent_first():
    texts = [ENGLISH, GERMAN, GERMAN, JAPANESE, "muy bien", ""]
    assert list(count_languages(texts).items()) == [("de", 2), ("en", 1), ("ja", 1)]


def test_a_text_of_few_words_is_in_no_language():
    assert list(map(find_language, [GERMAN, ENGLISH, "muy bien"])) == ["de", "en", ""]
