"""A task of the stars, a stage and an arm of another package, which docs/extending.md shows, are
used to the end: each is one module, added by one call.
"""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from beam_jobs.core.plugins import VARIABLE
from flows.runner.stage_runner import StageRunner
from flows.store.stage import ExistingStage, Stage
from flows.store.store import Store
from model import arms
from model.finetuning import tasks
from tests.model.corpora import write_corpus

DOCUMENT = Path(__file__).parent.parent / "docs" / "extending.md"
MODULES = ("satisfaction", "bayes", "word_counts")


def read_module(name: str) -> str:
    """The module of this name that the document shows: a block of Python after its name."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(rf"shop_extras/{name}\.py.*?```python\n(.*?)```", text, re.DOTALL)
    assert found, f"docs/extending.md shows no shop_extras/{name}.py"
    lines = found[1].splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[margin:] for line in lines) + "\n"


@pytest.fixture
def extras(tmp_path, monkeypatch):
    """The package, imported as a user's own, and by children; forgotten after the test."""
    package = tmp_path / "lib" / "shop_extras"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for name in MODULES:
        (package / f"{name}.py").write_text(read_module(name), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{Path(__file__).parent.parent}")
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(arms, "_ARMS", dict(arms.list_arms()))
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    monkeypatch.setattr(Stage, "registry", dict(Stage.registry))
    yield {name: importlib.import_module(f"shop_extras.{name}") for name in MODULES}
    for name in [name for name in sys.modules if name.startswith("shop_extras")]:
        del sys.modules[name]


def test_a_stage_is_made_in_a_child_process(extras, tmp_path):
    store = Store(tmp_path / "store")
    corpus = ExistingStage("corpus", 1)
    write_corpus(store.folder(corpus), reviews=50)
    store.publish(corpus, {"kept": 50})
    counts = extras["word_counts"].WordCounts(inputs={"corpus": corpus})
    manifest = StageRunner(store, [], None).complete_stage(counts)
    words = json.loads((store.folder(counts) / "words.json").read_text(encoding="utf-8"))
    assert manifest["result"] == words
    assert sum(words.values()) > 50
    again = [sys.executable, "-m", "flows.run_stage", str(store.root), counts.path]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == words


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.usefixtures("extras")
def test_a_run_takes_a_task_of_the_stars_and_an_arm_to_the_end(tmp_path):
    store = tmp_path / "store"
    words = ["run", "--dump", "sample:1500", "--store", str(store), "--recipe", "sample"]
    for setting in (
        "finetuning.tasks=satisfied",
        "finetuning.arms=bayes,tfidf",
        "pretraining.steps=2",
    ):
        words += ["--set", setting]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "naive Bayes" in done.stdout
    [report] = (json.loads(p.read_text("utf-8")) for p in store.glob("report/*/report.json"))
    assert {one["task"] for one in report["differences"]} == {"satisfied"}
    evaluations = [
        json.loads(p.read_text("utf-8")) for p in store.glob("evaluation/*/metrics.json")
    ]
    assert {tuple(one["labels"]) for one in evaluations} == {("no", "so so", "yes")}
