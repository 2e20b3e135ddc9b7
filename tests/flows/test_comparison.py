"""A model is compared with the champion as it is registered: ten times the labels win, a tenth does
not, and what the champion was trained on does not count.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amazon_electra.flows.runs.champion import decide
from amazon_electra.flows.stages.finetuning import Start, build_finetuning
from amazon_electra.flows.stages.model import (
    build_model_stages,
    compare_with_champions,
    load_scorer,
)
from amazon_electra.model.evaluation.compare_folders import compare_folders
from amazon_electra.model.export import ExportCell, export
from amazon_electra.model.finetune import finetune
from amazon_electra.model.finetuning.config import FinetuneConfig
from tests.corpus_folder import SCHEMA, row
from tests.flows.fakes import FakeStage

LETTERS = np.random.default_rng(0).choice([*"abcdefghijklmnopqrstuvwxyz"], (600, 7))
WORDS = ["".join(letters) for letters in LETTERS]
"""Good ones, then bad ones: a model has to see each to know it."""


def write_corpus(folder, labels, test, seed):
    """A corpus of reviews of five words, of which four say what the stars say."""
    draw, rows = np.random.default_rng(seed), []
    for number in range(labels + test):
        is_good = bool(draw.integers(2))
        sides = [is_good] * 4 + [not is_good]
        words = [WORDS[draw.integers(300) + (0 if side else 300)] for side in sides]
        split = "pretrain" if number < labels else "test"
        text = " ".join(draw.permutation(words)).capitalize() + "."
        rows.append(row([text], split) | {"stars": 5 if is_good else 1})
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "corpus-00000.parquet")
    (folder / "corpus.json").write_text(json.dumps({"read": len(rows), "kept": len(rows)}))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Corpus and model folder by the number of labels."""
    root = tmp_path_factory.mktemp("models")
    found = {}
    for labels in (300, 3_000):
        data = write_corpus(root / f"corpus-{labels}", labels, 400, seed=labels)
        settings = {"selection": "cross-validation"}
        config = FinetuneConfig(task="polarity", arm="tfidf", settings=settings)
        cell, tested = root / f"cell-{labels}", root / f"test-{labels}"
        finetune(config, data, cell, evaluation=tested)
        export([ExportCell("TF-IDF", cell, tested)], "polarity", data, root / f"model-{labels}")
        found[labels] = data, root / f"model-{labels}"
    return found


def compare(made, own, champion, data=None):
    return compare_folders(
        made[own][1], made[champion][1], "polarity", data or made[own][0], 10_000, load_scorer
    )


def test_ten_times_the_labels_become_champion_and_a_tenth_does_not(made):
    more, fewer = compare(made, 3_000, 300), compare(made, 300, 3_000)
    assert decide({"n_test": 400}, more).promote, more
    assert not decide({"n_test": 400}, fewer).promote
    assert more["n"] == fewer["n"] == 400
    assert more["macro_f1"]["low"] > 0.03
    assert fewer["macro_f1"]["high"] < -0.03
    same = compare(made, 300, 300)
    assert same["loss"]["difference"] == 0
    assert not decide({"n_test": 400}, same).promote


def test_what_the_champion_was_trained_on_leaves_the_comparison(made, tmp_path):
    """The new test split is the champion's training reviews, but for 150 of its own."""
    [trained] = (made[300][0]).glob("*.parquet")
    rows = pq.read_table(trained).slice(0, 300).to_pylist()
    own = pq.read_table(next((made[3_000][0]).glob("*.parquet"))).to_pylist()
    rows = [one | {"split": "test"} for one in rows]
    pq.write_table(
        pa.Table.from_pylist([*own[:3_150], *rows], schema=SCHEMA),
        tmp_path / "corpus-00000.parquet",
    )
    (tmp_path / "corpus.json").write_text("{}")
    found = compare(made, 3_000, 300, tmp_path)
    assert (found["n"], found["trained_on"]) == (150, 300)
    decision = decide({"n_test": 400}, found)
    assert not decision.promote
    assert "a person decides" in decision.reason


def test_every_task_has_a_model_and_is_compared_with_its_own_champion(tmp_path):
    corpus, tfidf = FakeStage("corpus", 1, {}), Start(arm="tfidf")
    cells = [
        build_finetuning("TF-IDF", FinetuneConfig(task=task), corpus, tfidf)
        for task in ("label:fault", "stars", "polarity")
    ]
    champions = {
        "stars": FakeStage("model", known="0123", title="champion"),
        "polarity": None,
        "label:fault": build_model_stages(cells, corpus)[0],
    }
    models = build_model_stages(cells, corpus)
    assert [model.config.task for model in models] == ["label:fault", "stars", "polarity"]
    compared = list(compare_with_champions(models, champions.get))
    assert [stage.config.task for stage in compared] == ["stars"], "not with itself"
    assert compared[0].inputs["champion"].fingerprint == "0123"
    assert compared[0].inputs["model"] is models[1]
