"""Whether a vocabulary still fits: told where it does not, silent where it does."""

import json

import pytest

from beam_jobs.core.errors import UserError
from model import vocabulary, vocabulary_fit
from tests.corpus_folder import row, write_corpus

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


def measured(made, tmp_path, words, *more):
    corpus = write_corpus(tmp_path / "new", reviews(words))
    given = [
        "--corpus",
        str(corpus),
        "--vocabulary",
        str(made),
        "--output",
        str(tmp_path / "fit"),
        *more,
    ]
    result = vocabulary_fit.run(given)
    assert json.loads((tmp_path / "fit" / "fit.json").read_text()) == result
    return result


def test_the_same_language_fits(made, tmp_path):
    result = measured(made, tmp_path, WORDS[3:])
    assert result["warnings"] == []
    assert (result["unknown_rate"], result["rose"]["unknown_rate"]) == (0, 0)
    assert result["words"] == 200 * 7
    assert result["reviews"] == 200


def test_words_it_does_not_know_are_told(made, tmp_path):
    result = measured(made, tmp_path, [*WORDS[:5], "電池"])
    assert result["rose"]["unknown_rate"] > 0.1
    [warning, *_] = result["warnings"]
    assert "of the words are unknown, 0.00% of the first dump's were (limit: 0.50% more)" in warning
    assert (
        measured(made, tmp_path, [*WORDS[:5], "電池"], "--unknown_rate", "0.5")["warnings"][1:]
        == []
    )


def test_words_it_cuts_into_more_pieces_are_told(made, tmp_path):
    strange = [word[::-1] + word for word in WORDS]
    result = measured(made, tmp_path, strange)
    assert result["rose"]["tokens_per_word"] > 0.1
    assert any("tokens per word" in warning for warning in result["warnings"])
    assert (
        measured(made, tmp_path, strange, "--tokens_per_word", "9", "--unknown_rate", "1")[
            "warnings"
        ]
        == []
    )


def test_only_the_pretrain_split_is_measured(made, tmp_path):
    folder = write_corpus(tmp_path / "new", reviews(WORDS, 10))
    other = write_corpus(tmp_path / "held out", [["電池 電池"]], split="test")
    (other / "corpus-00000.parquet").rename(folder / "corpus-00001.parquet")
    given = ["--corpus", str(folder), "--vocabulary", str(made), "--output", str(tmp_path / "fit")]
    assert vocabulary_fit.run(given)["unknown_rate"] == 0


def test_a_folder_without_a_vocabulary_is_refused(tmp_path):
    write_corpus(tmp_path / "new", [row(["a"], "pretrain")["sentences"]])
    with pytest.raises(UserError, match=r"--vocabulary: no .*tokenizer\.json"):
        vocabulary_fit.run(
            [
                "--corpus",
                str(tmp_path / "new"),
                "--vocabulary",
                str(tmp_path),
                "--output",
                str(tmp_path),
            ]
        )
