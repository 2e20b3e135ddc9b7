"""`score` says where the model is surer than its threshold, and the number that it expects."""

import numpy as np
import pyarrow as pa
import pytest

from amazon_electra.beam_jobs.model_folder.classifier import Classifier
from amazon_electra.beam_jobs.model_folder.config import ModelConfig
from amazon_electra.beam_jobs.scoring import score_files


def write_scores(tmp_path, monkeypatch, decided_from=None, numbers=(), thresholds=()):
    """Return the table of three records; the last has no text."""
    rows = score_files.Rows(ids=["a", "b", "c"], texts=["sure", "unsure", ""])
    rows.reasons, rows.given = [None, None, "no text"], [[None] * 3]
    monkeypatch.setattr(score_files, "read_rows", lambda *_: rows)
    logits = np.log(np.array([[0.9, 0.1], [0.4, 0.6]]))
    if thresholds:
        logits = logits - np.log(1 - np.exp(logits))
    about = {"kind": "onnx", "numbers": numbers, "decided_from": decided_from}
    labels = {"id2label": {0: "bad", 1: "good"}}
    if thresholds:
        labels["problem_type"] = "multi_label_classification"
        about["thresholds"] = thresholds
    config = ModelConfig(amazon_electra=about, **labels)
    models = score_files.Loaded((Classifier(config, lambda texts: logits),), (None,))
    plan, unit = _Any(), _Any()
    plan.folders.written, unit.name = str(tmp_path), f"unit-{decided_from}-{numbers}"
    plan.config.output_format = "parquet"
    plan.models, plan.versions, plan.prefixes = (str(tmp_path),), ("7",), ("",)
    unit.file.name, unit.file.index, unit.file.layout.mapping = "shop.csv", 0, ()
    score_files.score_unit(unit, plan, models)
    with pa.ipc.open_file(str(tmp_path / f"{unit.name}.arrow")) as file:
        return file.read_all()


class _Any:
    """An object whose every attribute is another."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = _Any()
        return self.__dict__[name]


def test_answers_below_the_threshold_are_for_a_person(tmp_path, monkeypatch):
    table = write_scores(tmp_path, monkeypatch, 0.8)
    assert table["decision"].to_pylist() == ["decided", "ask", None]
    assert table["label"].to_pylist() == ["bad", "good", None]
    never = write_scores(tmp_path, monkeypatch, 2.0)
    assert never["decision"].to_pylist() == ["ask", "ask", None]
    assert "decision" not in write_scores(tmp_path, monkeypatch).column_names


def test_the_expected_and_the_median_star_follow_from_the_probabilities(tmp_path, monkeypatch):
    table = write_scores(tmp_path, monkeypatch, numbers=(1.0, 5.0))
    assert table["expected"].to_pylist() == [pytest.approx(1.4), pytest.approx(3.4), None]
    assert table["median"].to_pylist() == [1, 5, None]
    assert not {"expected", "median"} & {*write_scores(tmp_path, monkeypatch).column_names}
    falling = np.array([[0.4, 0.1, 0.5], [0.1, 0.2, 0.7], [0.45, 0.1, 0.45]])
    assert score_files.find_medians(falling, [3, 2, 1]).tolist() == [1, 1, 2]


def test_a_multi_label_model_answers_with_lists(tmp_path, monkeypatch):
    """By sigmoids: the first text has 0.9 and 0.1, the second 0.4 and 0.6."""
    model = {"thresholds": [0.3, 0.5]}
    table = write_scores(tmp_path, monkeypatch, **model)
    assert table["label"].to_pylist() == [["bad"], ["bad", "good"], None]
    assert table["p.good"].to_pylist() == [pytest.approx(0.1), pytest.approx(0.6), None]
