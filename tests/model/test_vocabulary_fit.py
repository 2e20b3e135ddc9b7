"""Whether a vocabulary still fits: told where it does not, silent where it does."""

import json

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.model import vocabulary, vocabulary_fit
from amazon_electra.model.options import VocabularyFitConfig
from tests.corpus_folder import write_corpus

WORDS = "the battery lasts long and screen is bright phone works great case fits well".split()  # noqa: SIM905


def reviews(words, count=200):
    return [[" ".join(words[(i + k) % len(words)] for k in range(6)) + "."] for i in range(count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A vocabulary, measured when it was made on a dev split."""
    at = tmp_path_factory.mktemp("vocabulary")
    corpus = write_corpus(at / "corpus", reviews(WORDS))
    dev = write_corpus(at / "dev", reviews(WORDS[::-1], 40), split="dev")
    (dev / "corpus-00000.parquet").rename(corpus / "corpus-00001.parquet")
    vocabulary.run(["--corpus", str(corpus), "--output", str(at / "words"), "--size", "300"])
    return at / "words"


def measure(made, folder, words, **limits):
    corpus, config = write_corpus(folder / "new", reviews(words)), VocabularyFitConfig(**limits)
    result = vocabulary_fit.measure_vocabulary_fit(config, corpus, made, folder / "fit")
    assert json.loads((folder / "fit" / "fit.json").read_text()) == result
    return result


def test_the_same_language_fits(made, tmp_path):
    result = measure(made, tmp_path, WORDS[3:])
    assert result["warnings"] == []
    assert (result["unknown_rate"], result["rose"]["unknown_rate"]) == (0, 0)
    assert (result["words"], result["reviews"]) == (200 * 7, 200)


def test_words_it_does_not_know_are_told(made, tmp_path):
    unknown = [*WORDS[:5], "電池"]
    result = measure(made, tmp_path, unknown)
    assert result["rose"]["unknown_rate"] > 0.1
    [warning, *_] = result["warnings"]
    assert "of the words are unknown, 0.00% of the first dump's were (limit: 0.50% more)" in warning
    assert measure(made, tmp_path, unknown, unknown_rate=0.5)["warnings"][1:] == []


def test_words_it_cuts_into_more_pieces_are_told(made, tmp_path):
    strange = [word[::-1] + word for word in WORDS]
    result = measure(made, tmp_path, strange)
    assert result["rose"]["tokens_per_word"] > 0.1
    assert any("tokens per word" in warning for warning in result["warnings"])
    limits = {"tokens_per_word": 9, "unknown_rate": 1}
    assert measure(made, tmp_path, strange, **limits)["warnings"] == []


def test_a_folder_without_a_vocabulary_is_refused(tmp_path):
    with pytest.raises(UserError) as error:
        measure(tmp_path, tmp_path, WORDS)
    assert error.value.field == "vocabulary"
