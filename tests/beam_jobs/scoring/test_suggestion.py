"""Suggested reviews teach more than others: of a rare class above all; shuffled ones do not."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from amazon_electra.beam_jobs.labels.values import hash_value
from amazon_electra.beam_jobs.reading.fields import make_label_reader
from amazon_electra.beam_jobs.scoring.suggestion import choose_rows, suggest, write_suggestions
from tests.refusals import refuses

GOOD = ["superb", "lovely", "solid", "perfect", "handy", "sturdy", "neat", "bright"]
BAD = ["broke", "leaked", "refund", "useless", "cracked", "faulty", "smelly", "torn"]
PLAIN = [f"{a}{b}{c}" for a in "bdfgk" for b in "aeiou" for c in "lmnr"]


def draw_reviews(seed, n):
    """Return texts of words, of which one in ten is negative."""
    draw = np.random.default_rng(seed)
    labels = (draw.random(n) > 0.1).astype(int)
    texts = [
        " ".join([*draw.choice(PLAIN, 8), *draw.choice(GOOD if label else BAD, 1)])
        for label in labels
    ]
    return texts, labels


def measure(seed, is_shuffled=False):
    """Return the recall of the rare class with 40 chosen labels more, and with 40 random ones."""
    texts, labels = draw_reviews(seed, 1500)
    features = TfidfVectorizer().fit_transform(texts)
    own, pool, test = np.arange(60), np.arange(60, 800), np.arange(800, 1500)

    def fit(rows):
        return LogisticRegression(C=10).fit(features[rows], labels[rows])

    probabilities = fit(own).predict_proba(features[pool])
    if is_shuffled:
        probabilities = np.random.default_rng(seed).permutation(probabilities)
    chosen = pool[choose_rows([texts[i] for i in pool], probabilities, 40)]
    assert len({*chosen.tolist()}) == 40
    rare = test[labels[test] == 0]
    return [
        float((fit(np.r_[own, rows]).predict(features[rare]) == 0).mean())
        for rows in (chosen, pool[:40])
    ]


def test_suggested_reviews_find_the_rare_class():
    found = np.array([measure(seed) for seed in range(8)])
    assert found[:, 0].mean() > found[:, 1].mean() + 0.1
    shuffled = np.array([measure(seed, is_shuffled=True) for seed in range(8)])
    assert shuffled[:, 0].mean() < found[:, 0].mean() - 0.1  # the test sees a broken method


def test_rows_are_written_for_labelling_tools_and_read_back(tmp_path):
    texts, _ = draw_reviews(0, 50)
    probabilities = np.random.default_rng(0).dirichlet([1, 1], 51)
    rows = pd.DataFrame(
        {"file": "new.csv", "row": range(1, 52), "id": None, "text": [*texts, texts[0]]}
    )
    rows = rows.assign(
        label="good", **{"p.bad": probabilities[:, 0], "p.good": probabilities[:, 1]}
    )
    (tmp_path / "scores").mkdir()
    rows.to_parquet(tmp_path / "scores" / "new.scores.parquet")
    chosen = suggest(tmp_path / "scores", 10)
    assert len({row["text"] for row in chosen}) == 10
    write_suggestions(chosen, tmp_path / "to_label.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "to_label.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [row["row"] for row in chosen]
    read = make_label_reader("label", "label")
    assert read(lines[0] | {"label": ["bad"]}) == "bad"
    assert hash_value(read(lines[0]), folds=True) == 0  # nobody has labelled it
    write_suggestions(chosen, tmp_path / "tasks.json")
    assert json.loads((tmp_path / "tasks.json").read_text())[0]["data"]["text"] == lines[0]["text"]
    assert len(suggest(tmp_path / "scores", 500)) == 50  # a copy has the label of the other
    drawn = suggest(tmp_path / "scores", 20, at_random=True)
    assert drawn == suggest(tmp_path / "scores", 20, at_random=True)
    assert len({row["text"] for row in drawn}) == 20


@pytest.mark.parametrize("columns", [(), ("file", "row", "id", "text", "stars.label")])
def test_unfit_scores_are_refused(columns, tmp_path):
    if columns:
        pd.DataFrame([dict.fromkeys(columns, 1)]).to_parquet(tmp_path / "x.scores.parquet")
    with refuses(str(tmp_path)):
        suggest(tmp_path, 10)
