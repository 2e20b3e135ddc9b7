"""A model folder in a worker: its probabilities are those of the model itself."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import set_external_data
from skops import io

from amazon_electra.beam_jobs.model_folder import network
from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.model_folder.config import ModelConfig
from amazon_electra.beam_jobs.scoring.classifier import hash_model, load_classifier
from amazon_electra.beam_jobs.scoring.score_files import answer_texts
from tests.beam_jobs.scoring import models
from tests.refusals import refuses

TEXTS = ["good", "very good not bad fine", "bad " * 12, "unheard of", "not fine"] * 5


def test_a_network_gives_the_probabilities_of_each_text_alone(tmp_path, monkeypatch):
    expected = [models.expect(text) for text in TEXTS]
    model = load_classifier(str(models.write_network(tmp_path)), "fp32")
    np.testing.assert_allclose(model.score(TEXTS), expected, atol=1e-6)
    monkeypatch.setattr(network, "BATCH_TOKENS", 8)
    np.testing.assert_allclose(model.score(TEXTS), expected, atol=1e-6)
    assert model.score([]).shape == (0, 3)


def test_long_texts_are_cut_as_in_training(tmp_path):
    short = load_classifier(str(models.write_network(tmp_path / "short", max_length=2)), "fp32")
    np.testing.assert_allclose(
        short.score(["good bad fine fine"]), [models.expect("good bad")], atol=1e-6
    )


def test_tf_idf_gives_the_probabilities_of_its_pipeline(tmp_path):
    folder, pipeline = models.write_tfidf(tmp_path)
    for temperature in (1, 3):
        config = json.loads((folder / "config.json").read_text()) | {"temperature": temperature}
        (folder / "config.json").write_text(json.dumps(config))
        found = load_classifier(str(folder), "fp32").score(TEXTS)
        logits = pipeline.decision_function(TEXTS) / temperature
        expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert list(pipeline.classes_) == models.LABELS
    models.write_config(folder, "skops", ["mixed", *models.LABELS])
    found = load_classifier(str(folder), "fp32").score(["good phone"])
    assert found[0, 0] < 1e-6, "no text of its training was mixed"


def refuse(folder, *named):
    """Check that the folder is refused in one line that names it and the fault."""
    with refuses(folder, *named) as refused:
        load_classifier(str(folder), "fp32")
    assert refused.value.field == "model"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.onnx"])
@pytest.mark.parametrize("content", ["[]", "{}", "junk", None])
def test_a_broken_folder_is_a_mistake(tmp_path, name, content):
    folder = models.write_network(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    refuse(folder, "" if content else name)


@pytest.mark.parametrize(
    ("labels", "temperature", "vectors", "name"),
    [
        (["a", "a", "b"], 1, models.VECTORS, "a"),
        (["a", "", "b"], 1, models.VECTORS, "labels"),
        *((["a", "b", "c", "d"][:n], 1, models.VECTORS, "[1, 3]") for n in (2, 4)),
        *((models.LABELS, value, models.VECTORS, "temperature") for value in (1e-320, 1e300, -1)),
        *((models.LABELS, 1, models.VECTORS * wrong, "NaN") for wrong in (np.nan, np.inf)),
        (models.LABELS[:2], 1, models.VECTORS[:, :1], "[1, 1]"),
    ],
)
def test_labels_temperature_and_logits_fit(tmp_path, labels, temperature, vectors, name):
    folder = models.write_network(tmp_path, vectors=vectors)
    config = json.loads((folder / "config.json").read_text())
    config |= {"id2label": dict(enumerate(labels)), "temperature": temperature}
    (folder / "config.json").write_text(json.dumps(config))
    refuse(folder, name)


def test_weights_outside_the_file_are_refused(tmp_path, monkeypatch):
    """They would be read from the working directory, and stand in no digest."""
    folder, near = models.write_network(tmp_path / "model"), tmp_path / "near"
    near.mkdir()
    model = onnx.load(folder / "model.onnx")
    tensor = model.graph.initializer[0]
    (near / "weights").write_bytes(tensor.raw_data)
    set_external_data(tensor, "weights")
    tensor.ClearField("raw_data")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    monkeypatch.chdir(near)
    refuse(folder, "External data")


def test_a_pipeline_has_known_types_and_each_class_once(tmp_path):
    folder, pipeline = models.write_tfidf(tmp_path)
    pipeline[-1].classes_ = np.array(["negative", "negative", "positive"])
    io.dump(pipeline, folder / "model.skops")
    refuse(folder, "negative")
    pipeline.steps.append(("other", re.compile("harmless").__class__))
    io.dump(pipeline, folder / "model.skops")
    refuse(folder, "re.Pattern")


def test_a_weight_that_is_no_number_is_refused_at_the_first_text_that_uses_it(tmp_path):
    folder, pipeline = models.write_tfidf(tmp_path)
    names = list(pipeline[0].get_feature_names_out())
    pipeline[-1].coef_[0, names.index("tfidfvectorizer-1__phone")] = np.nan
    io.dump(pipeline, folder / "model.skops")
    model = load_classifier(str(folder), "fp32")
    assert model.score(["good"]).shape == (1, 3)
    with refuses(str(folder)):
        model.score(["good", "bad phone"])


def test_int8_is_its_own_file_and_missed_in_one_line(tmp_path):
    folder = models.write_network(tmp_path)
    with refuses("model_quantized.onnx"):
        hash_model(str(folder), "int8")
    (folder / "model.onnx").rename(folder / "model_quantized.onnx")
    load_classifier(str(folder), "int8")


def test_batches_hold_every_row_once_and_stay_within_their_size():
    lengths = [1, 4000, 30, 8000, 2, 500, 500, 500]
    found = list(network.group_by_length(lengths, 2_048))
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    assert [len(rows) for rows in found] == [1, 1, 4, 2]


def answer(is_table=True, **details):
    """Return the columns of two texts that have 0.9 and 0.1, 0.4 and 0.6 of the classes."""
    found = np.array([[0.9, 0.1], [0.4, 0.6]])
    shape = {"problem_type": "multi_label_classification"} if "thresholds" in details else {}
    about, labels = {"kind": "onnx", **details}, {0: "bad", 1: "good"}
    config = ModelConfig(amazon_electra=about, id2label=labels, **shape)
    columns = answer_texts(Classifier(config, np.zeros), ["sure", "unsure"], found, is_table, False)
    return {name: column.to_pylist() for name, column in columns.items()}


@pytest.mark.parametrize(
    ("least", "decisions"), [(0.8, ["decided", "ask"]), (2.0, ["ask", "ask"]), (None, None)]
)
def test_answers_below_the_threshold_are_for_a_person(least, decisions):
    found = answer(decided_from=least)
    assert found["label"] == ["bad", "good"]
    assert found.get("decision") == decisions


def test_a_multi_label_model_answers_with_lists():
    found = answer(thresholds=[0.3, 0.5])
    assert found["label"] == [["bad"], ["bad", "good"]]
    assert found["p.good"] == [0.1, 0.6]
    copied = answer(is_table=False, thresholds=[0.3, 0.5])
    assert copied == {"predicted": found["label"], "probability": [[0.9], [0.4, 0.6]]}
