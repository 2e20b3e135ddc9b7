"""Answers without a label, of a toy encoder with random weights."""

import pytest
import torch

from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.model.finetuning.classes import read_classes
from amazon_electra.model.without_labels import classify_without_labels
from tests.model.corpora import BAD, GOOD, THINGS, write_bert, write_corpus
from tests.refusals import refuses

REVIEWS = [f"The {thing} is {word}." for thing in THINGS for word in (*GOOD, *BAD)]
SHARE = 0.3


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("said")
    torch.manual_seed(0)
    write_corpus(folder / "corpus", files=1)
    write_bert(folder / "bert")
    return folder


def classify(places, name: str, yaml: str):
    (places / f"{name}.yaml").write_text(yaml)
    config = read_classes(str(places / f"{name}.yaml"))
    where = places / "bert", places / "corpus", places / name
    result = classify_without_labels(config, *where)
    return result, load_classifier(str(places / name), "fp32").score(REVIEWS).argmax(1).tolist()


def test_swapped_phrases_swap_the_answers(places):
    said = [", ".join(words) for words in (GOOD, BAD)]
    result, answers = classify(places, "mood", f"good: [{said[0]}]\nbad: [{said[1]}]\n")
    _, swapped = classify(places, "mode", f"good: [{said[1]}]\nbad: [{said[0]}]\n")
    assert swapped == [1 - one for one in answers]
    assert 0.2 < sum(answers) / len(answers) < 0.8
    assert result.task == "label:mood"
    assert "accuracy unknown" in result.says
    assert "accuracy unknown" in (places / "mood" / "README.md").read_text()


def test_answers_have_the_shares(places):
    yaml = f"good: [{', '.join(GOOD)}]\nbad: {{share: {SHARE}, phrases: [{', '.join(BAD)}]}}\n"
    result, _ = classify(places, "shared", yaml)
    assert abs(result.answers["bad"] / result.texts - SHARE) < 0.1


def test_rounded_shares_are_taken(tmp_path):
    (tmp_path / "why.yaml").write_text("".join(f"{n}: {{share: 0.333}}\n" for n in "abc"))
    assert read_classes(str(tmp_path / "why.yaml")).shares == [0.333] * 3


@pytest.mark.parametrize(
    "yaml", ["[1, 2]", "one: [a]", "one: {share: 0.7}\ntwo: {share: 0.7}", "a: {x: 1}\nb: []", "{"]
)
def test_a_wrong_file_is_named(tmp_path, yaml):
    file = tmp_path / "reason.yaml"
    file.write_text(yaml)
    with refuses(file):
        read_classes(str(file))
