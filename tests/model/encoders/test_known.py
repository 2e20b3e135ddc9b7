"""The table of published encoders, and the warning where one does not read a dump's language."""

import pytest

from amazon_electra.model.encoders.known import find_languages, warn_of_languages

MIXED = {"de": 60, "en": 30, "nl": 10}


@pytest.mark.parametrize(
    ("about", "reviews", "told"),
    [
        ({"name": "mini", "languages": "en"}, MIXED, "60% of the reviews are in the language de"),
        ({"name": "mini", "languages": "de"}, MIXED, "30% of the reviews are in the language en"),
        ({"name": "mini", "languages": "en, de"}, MIXED, ""),
        ({"name": "mini", "languages": "unknown"}, MIXED, ""),
        ({"name": "roberta-base", "languages": "unknown"}, MIXED, "roberta-base reads en"),
        ({"name": "xlm-roberta-base", "languages": "unknown"}, MIXED, ""),
        ({"name": "mini", "languages": "multilingual, en"}, MIXED, ""),
        ({"name": "nb-bert", "languages": "no"}, {"nb": 10}, ""),
        ({"name": "mini", "languages": "en"}, {}, ""),
    ],
)
def test_a_language_that_an_encoder_does_not_read(about, reviews, told):
    found = warn_of_languages(about, reviews)
    assert told in found
    assert bool(found) == bool(told)


def test_a_card_may_name_languages_in_words():
    assert find_languages({"name": "mini", "languages": "english, code, pt-BR"}) == {"pt"}
