"""`check` notices a folder that does not answer as the model did."""

import pytest

from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.flows.cli.main import main
from amazon_electra.model.self_test import SelfTest
from tests.beam_jobs.scoring.models import LABELS, write_tfidf

TEXTS = [f"{word} phone {n}" for n in range(20) for word in ("good", "bad")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, _ = write_tfidf(tmp_path_factory.mktemp("check") / "model")
    answers = load_classifier(str(folder), "fp32").compute_probabilities(TEXTS)
    SelfTest(LABELS, TEXTS, answers).write(folder)
    return folder


def check(capsys, *words):
    """Return the exit code of `check`, and what it wrote."""
    with pytest.raises(SystemExit) as ended:
        main(["check", *map(str, words)])
    read = capsys.readouterr()
    return ended.value.code, read.out + read.err


def test_a_damaged_folder_and_a_wrong_call_are_noticed(folder, tmp_path, capsys):
    assert check(capsys, folder)[0] == 0
    config = folder / "config.json"
    before = config.read_text()
    config.write_text(before.replace('"temperature": 1.5', '"temperature": 1'))
    try:
        code, said = check(capsys, folder)
    finally:
        config.write_text(before)
    assert code == 2
    assert "score: differs" in said
    code, said = check(capsys, tmp_path)
    assert code == 2
    assert "self_test.json" in said
    (tmp_path / "self_test.json").write_text('{"labels": ["a"], "texts": []}')
    code, said = check(capsys, tmp_path)
    assert code == 2
    assert "self_test.json" in said
