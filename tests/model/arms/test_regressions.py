"""TF-IDF and frozen states through the command that users type: their folders are those of a
fine-tuning.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from amazon_electra.beam_jobs.core.command_line import call_job
from amazon_electra.model import evaluate, finetune
from amazon_electra.model.arms import regression, states, tfidf
from amazon_electra.model.arms.regression import fit_regression
from amazon_electra.model.evaluation.predictions import read_predictions
from amazon_electra.model.finetuning.tasks import find_task
from tests.model.corpora import write_bert, write_corpus
from tests.refusals import refuses

POLARITY = find_task("polarity")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A corpus, an encoder, and the folders `tfidf` and `frozen` with their evaluations."""
    folder = tmp_path_factory.mktemp("arms")
    torch.manual_seed(0)
    write_corpus(folder / "corpus")
    write_bert(folder / "bert")
    for name in ("tfidf", "frozen", "joined"):
        fit(folder, name, folder / name, "--evaluation", str(folder / f"{name}-test"))
    return folder


def list_words(made: Path, arm: str, output: Path, task: str = "polarity") -> list[str]:
    places = ["--data", str(made / "corpus"), "--output", str(output)]
    return ["--arm", arm, "--encoder", str(made / "bert"), "--task", task, *places]


def fit(made: Path, arm: str, output: Path, *more: str, task: str = "polarity"):
    return call_job(finetune.finetune, [*list_words(made, arm, output, task), *more])


@pytest.mark.parametrize("kind", ["tfidf", "frozen", "joined"])
def test_a_regression_writes_what_a_fine_tuning_does(made, kind):
    run, result, head = (
        json.loads((made / kind / f"{name}.json").read_text()) for name in ("run", "result", "task")
    )
    assert run.items() <= result.items()
    assert (head["task"], head["kind"]) == ("polarity", kind)
    assert result["dev"]["accuracy"] > 0.9
    natural = [one for one in result["tried"] if one["class_weight"] is None]
    assert min(natural, key=lambda one: one["loss"])["C"] == result["C"]
    measured = json.loads((made / f"{kind}-test" / "metrics.json").read_text())
    assert measured["metrics"]["accuracy"]["value"] > 0.9


@pytest.mark.parametrize("kind", ["tfidf", "frozen"])
def test_an_evaluation_of_its_own_predicts_the_same(made, kind, tmp_path):
    where = ["--model", str(made / kind), "--data", str(made / "corpus"), "--task", "polarity"]
    call_job(evaluate.evaluate, [*where, "--output", str(tmp_path)])
    places = (tmp_path, made / f"{kind}-test")
    again, before = (read_predictions(place / "predictions.parquet") for place in places)
    assert again.ids == before.ids
    assert np.array_equal(again.probabilities, before.probabilities)


WITHOUT_TORCH = """
import sys
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.model.export import ExportCell, Path, export
from amazon_electra.model.finetune import FinetuneConfig, finetune
data, out = map(Path, sys.argv[1:])
finetune(FinetuneConfig(task="polarity", arm="tfidf"), data, out / "fit", evaluation=out / "test")
export([ExportCell("TF-IDF", out / "fit", out / "test")], "polarity", data, out / "model")
load_classifier(str(out / "model"), "fp32").score(["a great lamp"])
found = {"torch", "transformers", "skops"} & sys.modules.keys()
sys.exit(f"imported: {found}" if found else 0)
"""


def test_tfidf_imports_neither_torch_nor_transformers(made, tmp_path, monkeypatch):
    monkeypatch.delenv("AMAZON_ELECTRA_PLUGINS", raising=False)  # arms of other tests
    command = [sys.executable, "-c", WITHOUT_TORCH, str(made / "corpus"), str(tmp_path)]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("kind", ["tfidf", "frozen"])
def test_the_same_fit_gives_the_same_bytes(made, tmp_path, kind):
    command = [sys.executable, "-m", "amazon_electra.model.finetune"]
    subprocess.run([*command, *list_words(made, kind, tmp_path)], check=True, capture_output=True)
    file = {"tfidf": "words.npz", "frozen": "states.npz"}[kind]
    assert (tmp_path / file).read_bytes() == (made / kind / file).read_bytes()


def test_tasks_share_the_states_of_an_encoder(made, tmp_path):
    for task in ("polarity", "stars"):
        fit(made, "frozen", tmp_path / task, "--cache", str(tmp_path / "cache"), task=task)
    assert len(list((tmp_path / "cache").glob("states-*.safetensors"))) == 1
    first, other = (f / "model.safetensors" for f in (tmp_path / "stars", made / "frozen"))
    assert first.read_bytes() == other.read_bytes()


def test_more_labels_than_fit_are_told(made, tmp_path, monkeypatch):
    monkeypatch.setattr(states, "MAX_LABELS", 40)
    result = fit(made, "frozen", tmp_path)
    whole = json.loads((made / "frozen" / "result.json").read_text())["n_train"]
    assert result["n_train"] == 40 < whole
    assert [one for one in result["warnings"] if f"from 40 of {whole} labels" in one]


def test_a_class_without_examples_is_no_answer():
    texts = ["a bad lamp", "a bad book", "a good lamp", "a good book"] * 3
    labels = np.array([0, 0, 2, 2] * 3)
    model, fitted = tfidf.fit_words(texts, labels, 3, np.arange(12))
    assert {one.class_weight for one in fitted.tried} == {None, "balanced"}
    assert model.compute_logits(["bad lamp", "good book"]).argmax(1).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("arm", "task", "named"),
    [
        ("tfidf", "sst-2", "--data "),
        ("tfidf", "squad1", "tfidf"),
        ("frozen", "stars", "/bert"),
        ("tfdif", "polarity", "tfdif"),
    ],
)
def test_what_is_no_baseline_is_told(made, tmp_path, arm, task, named):
    if task in ("stars", "polarity"):
        (tmp_path / "corpus").symlink_to(made / "corpus")
    with refuses(named):
        fit(tmp_path, arm, tmp_path / "out", task=task)


def draw_words(n: int = 120, width: int = 900) -> tuple[csr_matrix, np.ndarray]:
    """Return sparse rows of norm 1, some columns frequent, and one of three classes of each."""
    draw = np.random.default_rng(0)
    counts = draw.poisson(np.r_[np.full(20, 1.0), np.full(width - 20, 0.02)], (n, width))
    counts[60] = counts[61]  # a text that is there twice
    rows = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    labels = np.digitize(rows[:, :5].sum(1) - rows[:, 5:10].sum(1), (-0.2, 0.2))
    return csr_matrix(rows, dtype=np.float32), labels


@pytest.mark.parametrize("limit", [6_000, 10])
def test_few_examples_give_the_features_regression(monkeypatch, limit):
    monkeypatch.setattr(regression, "MAX_EXAMPLES", limit)
    features, labels = draw_words()
    assert regression.is_shorter(features) == (limit > 120)
    fitted = fit_regression(features, labels, 3, (1.0,), np.arange(120))
    plain = LogisticRegression(C=1.0, class_weight=fitted.tried[0].class_weight, tol=1e-6)
    wanted = plain.fit(features.toarray(), labels).decision_function(features)
    assert np.allclose(fitted.model.decision_function(features), wanted, atol=0.02)
    assert fitted.model.coef_.shape == (3, 900)


def test_c_grows_while_the_loss_falls():
    draw = np.random.default_rng(0)
    features, labels = draw.normal(size=(200, 50)), draw.integers(0, 2, 200)
    fitted = fit_regression(features, labels, 2, (10.0, 0.0001, 0.1), np.arange(200))
    assert {one.C for one in fitted.tried} == {0.0001, 0.1}
