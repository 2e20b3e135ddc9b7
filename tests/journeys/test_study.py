"""A study goes from a dump to its report, and a search of settings too."""

import json
import re
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.sample.sample_dump import write_sample

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
TWO_CELLS = """
title: TF-IDF alone
question: Do more labels help TF-IDF?
seeds: [0]
arms:
  - {name: TF-IDF, encoder: tfidf}
tasks:
  - {task: polarity, data: "${corpus}", title: few, settings: {n_train: 60}}
  - {task: polarity, data: "${corpus}", title: more, settings: {n_train: 120}}
"""
SEARCH = """
title: Searched settings
question: Does the pre-trained encoder beat a random one?
seeds: [0]
arms:
  - {name: pre-trained, encoder: "${encoder}"}
  - {name: random, encoder: random, architecture: "${encoder}"}
tasks:
  - {task: polarity, data: "${corpus}"}
search:
  trials: 2
  space: {learning_rate: {low: 1.0e-4, high: 3.0e-3, log: true}}
settings: {epochs: 1, n_train: 100}
"""
TINY = ["steps=5", "batch=4", "layers=1", "hidden=32", "intermediate=64", "embedding=32"]
TRAINING = [f"--pretraining.{one}" for one in TINY]


def read_report(printed: str) -> dict:
    """Return report.json of a study, by what it printed."""
    assert re.search(r"^answer +\w", printed, re.M)
    report = Path(re.search(r"^report +(\S+)$", printed, re.M)[1])
    return json.loads(report.with_name("report.json").read_text())


@pytest.mark.smoke
def test_a_study_of_two_cells_ends_with_its_report(shell):
    (shell.folder / "study.yaml").write_text(TWO_CELLS)
    report = read_report(
        shell.type(
            "amazon-electra study FILE --dump DUMP",
            names={"FILE": "study.yaml", "DUMP": "sample:600"},
        )
    )
    assert {(row["arm"], row["task"]) for row in report["results"]} == {
        ("TF-IDF", "few"),
        ("TF-IDF", "more"),
    }


def test_the_study_of_the_page_compares_its_arms(shell):
    page = (ROOT / "docs" / "jobs.md").read_text()
    [study] = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    (shell.folder / "my-study.yaml").write_text(study)
    write_sample(shell.folder / "reviews.json.gz", 2400, 0)
    small = ["--study.seeds", "0", "--study.epochs", "1", *TRAINING]
    printed = shell.type("amazon-electra study my-study.yaml --dump reviews.json.gz", *small)
    differences = read_report(printed)["differences"]
    assert [(one["a"], one["b"]) for one in differences] == [("pre-trained", "random")] * 2


def test_a_search_chooses_settings_for_each_arm(shell):
    (shell.folder / "search.yaml").write_text(SEARCH)
    printed = shell.type("amazon-electra study search.yaml --dump sample:600", *TRAINING)
    assert {row["arm"] for row in read_report(printed)["results"]} == {"pre-trained", "random"}
    searches = [json.loads(p.read_text()) for p in shell.store.glob("search/*/manifest.json")]
    assert len(searches) == 2
