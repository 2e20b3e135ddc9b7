"""An arm of another package is fitted, evaluated, exported and loaded by `score` as ours are."""

from pathlib import Path

import numpy as np
import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.model import arms
from amazon_electra.model.arms.arm import Arm, Exported
from amazon_electra.model.export import ExportCell, export
from amazon_electra.model.finetune import FinetuneConfig, finetune
from tests.model.corpora import write_corpus
from tests.refusals import names


class Bayes(Arm):
    name = "bayes"
    title = "naive Bayes"
    format = "skops"

    def __init__(self, pipeline, labels):
        self.pipeline, self.labels, self.facts = pipeline, labels, {}

    @classmethod
    def fit(cls, train, dev, request, resources, output):
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.naive_bayes import MultinomialNB
        from sklearn.pipeline import make_pipeline

        labels = request.task.labels
        pipeline = make_pipeline(CountVectorizer(), MultinomialNB())
        pipeline.fit([e.text for e in train], [labels[int(e.label)] for e in train])
        arm = cls(pipeline, labels)
        arm.facts = {"n_train": len(train)}
        return arm

    def predict_logits(self, examples):
        found = self.pipeline.predict_log_proba([e.text for e in examples])
        return found[:, [list(self.pipeline.classes_).index(name) for name in self.labels]]

    def save(self, folder):
        import skops.io

        skops.io.dump(self.pipeline, folder / "model.skops")

    @classmethod
    def load(cls, folder, resources):
        import skops.io

        pipeline = skops.io.load(folder / "model.skops")
        return cls(pipeline, ("negative", "positive"))

    def export(self, folder, temperature, task):
        self.save(folder)
        return Exported(temperature)


def test_an_arm_from_outside_works_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(arms, "_ARMS", dict(arms.list_arms()))
    arms.register(Bayes)
    data, folder, test = (tmp_path / name for name in ("corpus", "bayes", "test"))
    write_corpus(data, reviews=300)
    result = finetune(FinetuneConfig(task="polarity", arm="bayes"), data, folder, evaluation=test)
    assert result.test["accuracy"] > 0.9
    exported = export([ExportCell("bayes", folder, test)], "polarity", data, tmp_path / "model")
    assert exported.kind == "bayes"
    texts = ["a great lamp", "an awful lamp"]
    scores = load_classifier(str(tmp_path / "model"), "fp32").score(texts)
    assert scores.argmax(1).tolist() == [1, 0]
    own = Bayes.load(folder, None).predict(texts)
    assert np.array_equal(own.argmax(1), scores.argmax(1))


def test_an_arm_that_cannot_be_exported_fails_at_its_fit(tmp_path, monkeypatch):
    class Other(Bayes):
        name = "other"

        def export(self, folder, temperature, task):
            raise TypeError("a type that skops does not trust")

    monkeypatch.setattr(arms, "_ARMS", dict(arms.list_arms()))
    arms.register(Other)
    write_corpus(tmp_path / "corpus", reviews=60)
    with pytest.raises(TypeError):
        finetune(FinetuneConfig(task="polarity", arm="other"), tmp_path / "corpus", tmp_path / "o")
    assert not (tmp_path / "o" / "result.json").exists()


def test_an_unknown_arm_is_named(tmp_path):
    with pytest.raises(UserError, check=names("tfdif")):
        finetune(FinetuneConfig(task="polarity", arm="tfdif"), tmp_path, Path(tmp_path, "out"))


def test_two_arms_of_one_name_are_refused(monkeypatch):
    monkeypatch.setattr(arms, "_ARMS", {"bayes": Bayes})
    with pytest.raises(ValueError, check=names("bayes")):
        arms.register(type("Other", (Bayes,), {}))
