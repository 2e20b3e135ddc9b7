"""The champion in MLflow's server: what is no review gets no label, and the answer says why."""

import json
import math
import sys

import mlflow.pyfunc
import pandas as pd
import pytest
import skops.io
from mlflow.pyfunc import scoring_server
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from starlette.testclient import TestClient

from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.beam_jobs.scoring.score_files import prepare_text
from amazon_electra.model.tracking.served_model import write_served_model

LABELS = ["label", "reason"]
"""Classes with the names of the answer's own fields."""
TEXTS = ["good lamp", "a lamp that broke"]
NO_REVIEWS = [None, math.nan, 5, True, ["a", "b"], {"a": 1}, "", "  \n", "\ud800"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "model"
    folder.mkdir()
    pipeline = make_pipeline(HashingVectorizer(n_features=64), LogisticRegression())
    pipeline.fit([*TEXTS, "good"], [*LABELS, LABELS[0]])
    skops.io.dump(pipeline, folder / "model.skops")
    config = {"id2label": dict(enumerate(LABELS)), "temperature": 1.5}
    config["amazon_electra"] = {"kind": "skops"}
    (folder / "config.json").write_text(json.dumps(config))
    write_served_model(folder, folder.parent / "served")
    return folder


@pytest.fixture(scope="module")
def post(folder):
    """Sends a body to the server, as `mlflow models serve` runs it; returns status and answer."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("model_folder", "serving")]:
        del sys.modules[name]  # of another served model of this process
    model = mlflow.pyfunc.load_model(str(folder.parent / "served"))
    client = TestClient(scoring_server.init(model), raise_server_exceptions=False)

    def post(body):
        headers = {"Content-Type": "application/json"}
        answer = client.post("/invocations", content=json.dumps(body), headers=headers)
        return answer.status_code, answer.json()

    return post


def as_frame(column, values):
    return {"dataframe_split": {"columns": [column], "data": [[value] for value in values]}}


def as_list(values):
    return {"inputs": values}


@pytest.mark.parametrize("form", [as_list, lambda values: as_frame("text", values)])
def test_what_is_no_review_has_a_reason(post, form):
    status, answer = post(form([TEXTS[0], *NO_REVIEWS]))
    assert status == 200
    assert answer["predictions"][0]["label"] in LABELS
    reasons = [prepare_text(value, repair_run_ons=True)[1] for value in NO_REVIEWS]
    assert all(reasons)
    assert answer["predictions"][1:] == [
        {"label": None, "probabilities": None, "reason": reason} for reason in reasons
    ]


def test_probabilities_are_those_of_score(folder, post):
    expected = load_classifier(str(folder), "fp32").score(TEXTS)
    model = mlflow.pyfunc.load_model(str(folder.parent / "served"))
    frame = model.predict(pd.DataFrame({"id": [1, 2], "text": TEXTS})).to_dict("records")
    for rows in (post(as_list(TEXTS))[1]["predictions"], frame):
        assert [row["label"] for row in rows] == [LABELS[place] for place in expected.argmax(1)]
        for row, probabilities in zip(rows, expected.tolist(), strict=True):
            assert row["reason"] is None
            assert row["probabilities"] == pytest.approx(
                dict(zip(LABELS, probabilities, strict=True)), abs=1e-6
            )
    assert post(as_list([])) == (200, {"predictions": []})


@pytest.mark.parametrize(
    "body",
    [
        as_list([["a", "b"]]),
        as_list([["a"], ["b"]]),
        as_list([{"a": 1}]),
        {"inputs": {"foo": ["a"]}},
        as_frame("text", [["a", "b"]]),
        as_frame("foo", ["a"]),
    ],
)
def test_what_is_no_column_of_values_is_refused(post, body):
    status, answer = post(body)
    assert status == 400
    assert "text" in answer["message"]


def test_the_model_runs_without_this_package(folder, post):
    assert str(folder.parent) in sys.modules["model_folder"].__path__[0]
    assert str(folder) not in (folder.parent / "served" / "MLmodel").read_text()
