"""A model folder in a worker: its probabilities are those of the model itself."""

import json
import re

import numpy as np
import pytest

from beam_jobs.core.errors import UserError
from beam_jobs.scoring import classifier
from beam_jobs.scoring.classifier import group_by_length, hash_model, load_classifier
from tests.beam_jobs.scoring.models import LABELS, expect, write_config, write_network, write_tfidf

TEXTS = ["good", "very good not bad fine", "bad " * 12, "unheard of", "not fine"] * 5


def test_a_network_gives_the_probabilities_of_each_text_alone(tmp_path, monkeypatch):
    expected = [expect(text) for text in TEXTS]
    model = load_classifier(str(write_network(tmp_path)), "fp32")
    np.testing.assert_allclose(model.score(TEXTS), expected, atol=1e-6)
    monkeypatch.setattr(classifier, "BATCH_TOKENS", 8)
    np.testing.assert_allclose(model.score(TEXTS), expected, atol=1e-6)
    assert model.score([]).shape == (0, 3)


def test_long_texts_are_cut_as_in_training(tmp_path):
    short = load_classifier(str(write_network(tmp_path / "short", max_length=2)), "fp32")
    np.testing.assert_allclose(short.score(["good bad fine fine"]), [expect("good bad")], atol=1e-6)


def test_tf_idf_gives_the_probabilities_of_its_pipeline(tmp_path):
    folder, pipeline = write_tfidf(tmp_path)
    for temperature in (1, 3):
        config = json.loads((folder / "config.json").read_text()) | {"temperature": temperature}
        (folder / "config.json").write_text(json.dumps(config))
        found = load_classifier(str(folder), "fp32").score(TEXTS)
        logits = pipeline.decision_function(TEXTS) / temperature
        expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert list(pipeline.classes_) == LABELS
    write_config(folder, "tfidf", ["mixed", *LABELS])
    found = load_classifier(str(folder), "fp32").score(["good phone"])
    assert found[0, 0] < 1e-6, "no text of its training was mixed"


def test_a_pipeline_with_anything_but_known_types_is_not_loaded(tmp_path):
    from skops import io

    folder, pipeline = write_tfidf(tmp_path)
    pipeline.steps.append(("other", np.random.Generator))
    pipeline.steps[-1] = ("other", re.compile("harmless").__class__)
    io.dump(pipeline, folder / "model.skops")
    with pytest.raises(UserError, match=r"cannot be loaded.*re\.Pattern"):
        load_classifier(str(folder), "fp32")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", "[]", "config.json is not that of a classifier"),
        ("config.json", '{"id2label": {"0": "a"}}', "id2label"),
        ("model.onnx", "junk", "cannot be loaded"),
        ("tokenizer.json", "{}", "cannot be loaded"),
        ("model.onnx", None, "has no model.onnx"),
        ("config.json", None, "has no config.json"),
    ],
)
def test_a_broken_folder_is_a_mistake(tmp_path, name, content, words):
    folder = write_network(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(UserError, match=rf"--model {re.escape(str(folder))}: .*{words}"):
        load_classifier(str(folder), "fp32")


def test_int8_is_its_own_file_and_missed_in_one_line(tmp_path):
    folder = write_network(tmp_path)
    with pytest.raises(UserError, match=r"--precision int8: .* has no model_quantized.onnx"):
        hash_model(str(folder), "int8")
    (folder / "model.onnx").rename(folder / "model_quantized.onnx")
    load_classifier(str(folder), "int8")
    write_config(folder, "tfidf", LABELS)
    with pytest.raises(UserError, match="is no network"):
        hash_model(str(folder), "int8")


def test_batches_hold_every_row_once_and_stay_within_their_size():
    ids = [[1] * n for n in (1, 4000, 30, 8000, 2, 500, 500, 500)]
    found = list(group_by_length(ids, 2_048))
    assert sorted(row for rows in found for row in rows) == list(range(len(ids)))
    assert [len(rows) for rows in found] == [1, 1, 4, 2]
