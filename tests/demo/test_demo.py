"""The demo shows what the README says, and nothing odd: whoever types `make demo` judges the
project by it.

`make test-demo` runs the demo first and names its store in AMAZON_ELECTRA_DEMO_STORE.
"""

import json
import os
import re
from pathlib import Path

import pytest

STORE = Path(os.environ.get("AMAZON_ELECTRA_DEMO_STORE", ""))
README = Path(__file__).parents[2] / "README.md"
ROUNDING = 0.015
"""A network trained in bf16 ends up to so far from one trained in fp32."""
TASKS = ("polarity", "stars")


def find_newest(pattern: str) -> Path:
    found = sorted(STORE.glob(pattern), key=lambda path: path.stat().st_mtime)
    assert found, f"{STORE} has no {pattern}: run `make test-demo`"
    return found[-1]


@pytest.fixture(scope="module")
def report() -> dict:
    return json.loads(find_newest("report/*/report.json").read_text())


@pytest.fixture(scope="module")
def models() -> dict[str, dict]:
    """The results of the model of each task."""
    newest = find_newest("report/*/manifest.json")
    made = json.loads(newest.read_text())["inputs"].values()
    folders = [STORE / "model" / one["fingerprint"] for one in made if one["stage"] == "model"]
    assert all((folder / "README.md").is_file() for folder in folders)
    found = [json.loads((folder / "results.json").read_text()) for folder in folders]
    return {one["task"]: one for one in found}


def find_accuracies(report: dict, task: str) -> dict[str, dict[str, float]]:
    rows = [row for row in report["results"] if row["task"] == task]
    return {row["arm"]: row["metrics"]["accuracy"] for row in rows}


@pytest.mark.parametrize(("task", "points"), [("polarity", 0.08), ("stars", 0.0)])
def test_pre_training_is_better_than_none(report, task, points):
    """The gains vary with the processor's arithmetic: 14 and 3 points on a CPU without bf16."""
    arms = find_accuracies(report, task)
    assert arms["pre-trained"]["value"] > arms["random"]["value"] + points


@pytest.mark.parametrize("task", TASKS)
def test_the_better_arm_is_the_model(report, models, task):
    arms = find_accuracies(report, task)
    chosen = arms[models[task]["arm"]]["value"]
    assert chosen > max(arm["value"] for arm in arms.values()) - 0.02


@pytest.mark.parametrize("task", TASKS)
def test_no_label_of_the_generator_is_called_wrong(models, task):
    wrong = models[task]["questions"]["wrong_labels"]
    assert (wrong["low"] or 0) <= 0.01 * wrong["n"]
    assert wrong["listed"] - wrong["contradicted"] <= 0.01 * wrong["n"]


def test_the_first_line_of_the_report_names_its_task():
    lines = find_newest("report/*/report.md").read_text().splitlines()
    first = next(line for line in lines if line.startswith("**"))
    assert any(task in first for task in TASKS)


def test_the_figures_of_the_readme_lie_in_the_intervals(report):
    text = " ".join(README.read_text(encoding="utf-8").split())
    told = re.search(
        r"polarity is ([\d.]+)% right with pre-training, ([\d.]+)% without, "
        r"and ([\d.]+)% with TF-IDF",
        text,
    )
    arms = find_accuracies(report, "polarity")
    for arm, figure in zip(("pre-trained", "random", "TF-IDF"), told.groups(), strict=True):
        low, high = arms[arm]["low"] - ROUNDING, arms[arm]["high"] + ROUNDING
        assert low <= float(figure) / 100 <= high, arm
