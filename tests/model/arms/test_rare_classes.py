"""A class of one review in fifty is found: by log-loss, or by balanced class weights where these
gain macro-F1, and never by answering the others.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.model.arms.regression import fit_regression
from amazon_electra.model.finetune import finetune
from amazon_electra.model.finetuning.config import FinetuneConfig
from tests.corpus_folder import SCHEMA, row

THINGS = ("lamp", "kettle", "rug", "drill", "mug", "chair")
BAD = ("broke at the hinge", "went back to the shop", "was a disappointment", "arrived in pieces")
GOOD = ("feels solid", "looks new after months", "does what it should", "is a joy to use")
EITHER = ("It came with a manual.", "The box was plain.", "I use it twice a week.", "It is blue.")


def write_dump(folder, reviews, share, noise):
    """Reviews with the share of negatives; `noise` of either class talk like the other one."""
    draw, rows = np.random.default_rng(0), []
    for number in range(reviews):
        is_bad = draw.random() < share
        words = BAD if is_bad != (draw.random() < noise) else GOOD
        sentences = [f"The {draw.choice(THINGS)} {draw.choice(words)}.", *draw.permutation(EITHER)]
        split = "test" if number % 5 == 0 else "pretrain"
        sentences = [*sentences[: draw.integers(1, 5)], f"Order {number}."]
        rows.append(row(sentences, split) | {"stars": 1 if is_bad else 5})
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "corpus-00000.parquet")
    (folder / "corpus.json").write_text(json.dumps({"read": reviews, "kept": reviews}))
    return folder


@pytest.mark.parametrize("noise", [0.0, 0.025])
def test_rare_negatives_are_found(tmp_path, noise):
    data = write_dump(tmp_path / "corpus", 3_000, 0.02, noise)
    settings = {"selection": "cross-validation"}
    config = FinetuneConfig(task="polarity", arm="tfidf", settings=settings)
    finetune(config, data, tmp_path / "fitted", evaluation=tmp_path / "test")
    [negatives, positives] = json.loads((tmp_path / "test" / "metrics.json").read_text())[
        "confusion"
    ]
    assert sum(negatives) >= 8
    assert negatives[0] / sum(negatives) >= 0.8
    assert positives[1] / sum(positives) >= 0.95


@pytest.mark.parametrize(
    ("shares", "is_worth_it"), [((0.1, 0.15, 0.75), True), ((0.1, 0.1, 0.1, 0.7), False)]
)
def test_balanced_classes_are_not_taken_at_any_price(shares, is_worth_it):
    draw, classes = np.random.default_rng(0), len(shares)
    labels = draw.choice(classes, size=1_500, p=shares)
    features = np.eye(classes)[labels] + draw.normal(size=(len(labels), classes))
    tried = fit_regression(features, labels, classes, (1e-3,), np.arange(len(labels))).tried
    assert (tried[0].class_weight == "balanced") == is_worth_it
    plain, balanced = sorted(tried, key=lambda one: one.class_weight or "")
    gained, lost = balanced.macro_f1 - plain.macro_f1, plain.accuracy - balanced.accuracy
    assert gained > lost > 0.01
    assert (gained > 2 * lost) == is_worth_it
