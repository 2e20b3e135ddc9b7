"""A dump with stars and two label columns, one of them with several labels a row: a model, a
registered name and a group of scores' columns for each task.
"""

import csv
import random
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.flows.servers.mlflow_server import resolve_mlflow_uri
from amazon_electra.model.tracking.registry import Registry, list_registries, name_model
from tests.served import electra

pytestmark = pytest.mark.slow

ASPECTS = {"battery": "the battery is flat", "price": "too dear for me", "taste": "tastes of soap"}
TEAMS = {"delivery": "the parcel came late", "kitchen": "the lid does not close"}
TASKS = ("stars", "label:team", "label:aspects")
REVIEWS, SCORED = 600, 60
TINY = {"steps": 5, "batch": 4, "layers": 1, "hidden": 32, "intermediate": 64, "embedding": 32}


def write_shop(path, first, count):
    """Write reviews whose stars, team and aspects (none or several, `a|b`) follow from the text."""
    generator = random.Random(first)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["order_id", "text", "stars", "team", "aspects"])
        for i in range(first, first + count):
            stars, team = generator.randint(1, 5), generator.choice([*TEAMS])
            aspects = [name for name in ASPECTS if generator.random() < 0.4]
            words = [f"kettle number {i}", "good " * stars, TEAMS[team]]
            text = ". ".join([*words, *(ASPECTS[name] for name in aspects)])
            rows.writerow([i, text, stars, team, "|".join(aspects)])
    return path


def succeed(*words):
    """Return what a command printed, which ended well."""
    done = electra(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_task_has_a_model_a_name_and_its_columns_of_scores(tmp_path, begin_store):
    store = begin_store(tmp_path / "store")
    dump = write_shop(tmp_path / "shop.csv", 0, REVIEWS)
    settings = [f"pretraining.{name}={value}" for name, value in TINY.items()]
    settings += ["finetuning.arms=tfidf", "finetuning.seeds=0"]
    settings += [f"finetuning.tasks={','.join(TASKS)}"]
    sets = [word for setting in settings for word in ("--set", setting)]
    words = ["--dump", dump, "--store", store, "--recipe", "sample"]
    printed = succeed("run", *words, "--label", "team", "--label", "aspects", *sets)
    models = dict(re.findall(r"^model +(\S+), (\S+)$", printed, re.M))
    folders = {task: Path(folder) for folder, task in models.items()}
    assert folders.keys() == {*TASKS}

    uri = resolve_mlflow_uri(store)
    assert {one.name for one in list_registries(uri)} == {*map(name_model, TASKS)}
    for task, folder in folders.items():
        registry = Registry(uri, name_model(task))
        if not registry.get_by_alias("champion"):  # fewer test reviews than the rule asks for
            assert registry.get_by_alias("challenger")["version"] == "1"
            registry.promote("1", "by hand")
        assert registry.get_by_alias("champion")["model"] == folder.name

    new = write_shop(tmp_path / "new.csv", 5000, SCORED)
    words = ["--dump", new, "--store", store, "--with-text"]
    succeed("score", *words, "--output", tmp_path / "all")
    rows = pd.read_parquet(tmp_path / "all" / "new.scores.parquet")
    assert [*rows["row"]] == [*range(1, SCORED + 1)]
    for task, folder in folders.items():
        prefix = task.removeprefix("label:")
        alone = load_classifier(str(folder), "fp32")
        probabilities = alone.score([*rows["text"]])
        told = rows[[f"{prefix}.p.{label}" for label in alone.labels]].to_numpy()
        assert np.abs(told - probabilities).max() < 1e-6
        answers = [
            one if isinstance(one, str) else [*one] for one in rows[f"{prefix}.label"].tolist()
        ]
        assert answers == alone.answer(probabilities)
        assert set(rows[f"{prefix}.model_version"]) == {"1"}
    own = pd.read_csv(new, keep_default_na=False)
    assert (rows["team.label"] == own["team"]).mean() > 0.9
    given = own["aspects"].map(lambda one: [*filter(None, one.split("|"))])
    assert np.mean([[*a] == b for a, b in zip(rows["aspects.label"], given, strict=True)]) > 0.9
    expected = rows[[f"stars.p.{n}" for n in load_classifier(str(folders["stars"]), "fp32").labels]]
    assert np.allclose(expected.to_numpy() @ np.arange(1, 6), rows["stars.expected"], atol=1e-4)

    succeed("score", *words, "--task", "aspects", "--output", tmp_path / "one")
    chosen = pd.read_parquet(tmp_path / "one" / "new.scores.parquet")
    assert "stars.label" not in chosen.columns
    assert chosen["label"].map(list).tolist() == rows["aspects.label"].map(list).tolist()
