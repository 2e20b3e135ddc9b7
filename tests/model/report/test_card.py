"""The model card says what the folder is, and of each task what it is."""

import json

import numpy as np
import pytest
from huggingface_hub import ModelCard
from transformers import AutoModel, AutoTokenizer

from model.evaluation.evaluate import summarize_predictions
from model.evaluation.predictions import Predictions
from model.finetuning.tasks import find_task
from model.report.card import write_model_folder
from model.report.inputs import ReportInput
from model.report.results import Cell, Results
from tests.model.corpora import write_bert, write_electra


def said(task):
    """Of forty examples of the task's shape, three in four right."""
    n = 40
    right = np.arange(n) % 4 > 0
    ids, loss, labels = [str(i) for i in range(n)], np.zeros(n), np.arange(n) % 2
    if task.shape == "regression":
        return Predictions(
            ids, labels.astype(float).tolist(), (labels + 0.5 * right).tolist(), loss
        )
    if task.shape == "span":
        scores = {"exact": right.astype(float), "f1": right.astype(float)}
        return Predictions(ids, [[["a", 0]]] * n, ["a"] * n, loss, scores=scores)
    if task.shape == "tokens":
        scores = {"right": right.astype(float), "predicted": np.ones(n), "labelled": np.ones(n)}
        return Predictions(ids, [[0]] * n, [[0]] * n, loss, None, 9, scores)
    guesses = np.where(right, labels, 1 - labels)
    probabilities = np.where(np.arange(2) == guesses[:, None], 0.8, 0.2).astype(np.float32)
    return Predictions(ids, labels.tolist(), guesses.tolist(), loss, probabilities, 2)


def results(tmp_path, **titles):
    cells = []
    for title, name in titles.items():
        predictions = said(find_task(name))
        about = summarize_predictions(predictions, find_task(name), "test")
        cells.append(Cell("a", title, 0, tmp_path, about, predictions))
    return Results(cells)


def write_card(source, output, told, found):
    """Write the folder of a study of which no more than this is known."""
    cell = {"arm": "a", "task": "p", "seed": 0, "evaluation": "e"}
    study = ReportInput.model_validate({"cells": [cell], **told})
    write_model_folder(source, output, study, found, "Yes.")


TYPES = {
    "polarity, 800 labels": ("polarity", "text-classification"),
    "similarity": ("sts-b", "text-classification"),
    "questions": ("squad1", "question-answering"),
    "names": ("conll2003", "token-classification"),
    "endings": ("swag", "multiple-choice"),
}


def test_every_task_has_its_type(tmp_path):
    found = results(tmp_path, **{title: name for title, (name, _) in TYPES.items()})
    write_card(write_electra(tmp_path / "electra"), tmp_path / "model", {}, found)
    card = ModelCard.load(tmp_path / "model" / "README.md")
    told = {r.dataset_name: (r.dataset_type, r.task_type) for r in card.data.eval_results}
    assert told == TYPES
    values = {(r.dataset_name, r.metric_type): r.metric_value for r in card.data.eval_results}
    assert values["questions", "exact_match"] == values["polarity, 800 labels", "accuracy"] == 0.75


@pytest.mark.parametrize(
    ("write", "words"),
    [(write_electra, "An ELECTRA discriminator"), (write_bert, "An encoder (Bert")],
)
def test_the_folder_loads_and_is_called_what_it_is(write, words, tmp_path):
    found = results(tmp_path, p="polarity")
    write_card(write(tmp_path / "source"), tmp_path / "model", {}, found)
    _, problems = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not problems["missing_keys"]
    assert AutoTokenizer.from_pretrained(tmp_path / "model").convert_tokens_to_ids("[MASK]") == 4
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert words in card.text
    assert "as it was found" in card.text
    assert (card.data.license, card.data.language) == (None, None)


@pytest.mark.parametrize("is_ours", [True, False])
def test_weights_of_the_same_store_are_no_second_copy(is_ours, tmp_path):
    source = write_electra(tmp_path / "store" / "pretraining" / "discriminator")
    (source / "README.md").write_text("# Mine\n")
    study = {"store": str(tmp_path / "store")} if is_ours else {"store": str(tmp_path / "other")}
    found = results(tmp_path, p="polarity")
    write_card(source, tmp_path / "model", study, found)
    weights = tmp_path / "model" / "model.safetensors"
    assert weights.samefile(source / "model.safetensors") is is_ours
    assert (source / "README.md").read_text() == "# Mine\n", "the new card is a file of its own"


def test_a_masked_language_model_of_ours_is_no_discriminator_and_keeps_its_own_card(tmp_path):
    source = write_electra(tmp_path / "run" / "encoder")
    config = json.loads((source / "config.json").read_text())
    config |= {"architectures": ["ElectraForMaskedLM"]}
    (source / "config.json").write_text(json.dumps(config))
    own = "---\nlicense: mit\ntags: [reviews]\n---\n\n# Mine\n\n## Data\n\n9 sequences.\n"
    (source / "README.md").write_text(own)
    (tmp_path / "run" / "result.json").write_text("{}")
    study = {"dump": {"name": "lamps", "fingerprint": "f00", "files": [{"name": "a.json"}]}}
    write_card(source, tmp_path / "model", study, results(tmp_path, p="polarity"))
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert "lamps, fingerprint f00." in card.text
    assert "A masked language model (`ElectraForMaskedLM` gives its head)" in card.text
    assert "discriminator" not in card.text
    assert "## Mine\n\n### Data\n\n9 sequences." in card.text
    assert (card.data.license, card.data.tags) == ("mit", ["reviews"])


ORIGIN = {"name": "all-MiniLM", "place": "org/all-MiniLM@0123abc", "revision": "0123abc"}
ORIGIN |= {"sha256": "5ca1ab1e", "license": "apache-2.0", "training_data": "unknown"}


@pytest.mark.parametrize(
    ("told", "base", "licence"),
    [
        ({}, "org/all-MiniLM", "apache-2.0"),
        ({"revision": None, "place": "package:mini", "license": "unknown"}, None, "unknown"),
    ],
)
def test_the_origin_is_told_with_its_licence_and_what_nobody_knows(told, base, licence, tmp_path):
    arms = [{"name": "a", "origin": "f00"}]
    study = {"arms": arms, "origins": {"f00": ORIGIN | told, "b0b": {"name": "another"}}}
    source = write_electra(tmp_path / "electra")
    write_card(source, tmp_path / "model", study, results(tmp_path, p="polarity"))
    card = ModelCard.load(tmp_path / "model" / "README.md")
    assert (card.data.base_model, card.data.license) == (base, licence)
    revision = told.get("revision", "0123abc") or "unknown"
    for line in (f"revision: {revision}", f"licence: {licence}", "training data: unknown"):
        assert f"- {line}\n" in card.text
