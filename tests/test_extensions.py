"""A format, a task of the stars, an objective, a stage and an arm of another package, which
docs/extending.md shows, are used to the end: each is one module, added by one call.
"""

import gzip
import importlib
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from amazon_electra.beam_jobs.config import CorpusConfig
from amazon_electra.beam_jobs.core.plugins import VARIABLE
from amazon_electra.beam_jobs.reading import formats, work_units
from amazon_electra.beam_jobs.reading.lines import Tally
from amazon_electra.beam_jobs.sample.sample_dump import generate_lines
from amazon_electra.beam_jobs.scoring.classifier import load_classifier
from amazon_electra.beam_jobs.scoring.plan import name_outputs
from amazon_electra.flows.configuration.form import Dump
from amazon_electra.flows.dumps.preview import read_preview
from amazon_electra.flows.runner.stage_runner import StageRunner
from amazon_electra.flows.store.stage import Stage
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.watch import is_named_like_a_dump
from amazon_electra.model import arms
from amazon_electra.model.config import PretrainingConfig
from amazon_electra.model.export import ExportCell, export
from amazon_electra.model.finetune import FinetuneConfig, finetune
from amazon_electra.model.finetuning import tasks
from amazon_electra.model.pretraining import objectives
from amazon_electra.model.pretraining.network.encoder import initialize_weights
from amazon_electra.model.pretraining.objectives import MatrixFlops
from amazon_electra.model.recipes import RECIPES, apply_settings
from tests.flows.fakes import FakeStage
from tests.model.corpora import write_corpus

DOCUMENT = Path(__file__).parent.parent / "docs" / "extending.md"
MODULES = ("star_lines", "satisfaction", "bayes", "word_counts", "substitution")


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
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{os.environ['PYTHONPATH']}")
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(formats, "FORMATS", dict(formats.FORMATS))
    monkeypatch.setattr(objectives, "OBJECTIVES", dict(objectives.OBJECTIVES))
    monkeypatch.setattr(arms, "_ARMS", dict(arms.list_arms()))
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    monkeypatch.setattr(Stage, "registry", dict(Stage.registry))
    yield {name: importlib.import_module(f"shop_extras.{name}") for name in MODULES}
    for name in [name for name in sys.modules if name.startswith("shop_extras")]:
        del sys.modules[name]


def write_star_lines(path: Path, reviews: int) -> Path:
    """Write reviews as lines that begin with their stars, packed if the name says so."""
    lines = []
    for line in generate_lines(2 * reviews, seed=0):
        with suppress(ValueError, KeyError, TypeError):
            record = json.loads(line)
            text = " ".join(record["reviewText"].split())
            lines += ["★" * int(record["overall"]) + f"☆ {text}\n"] if text else []
    content = "".join(lines[:reviews]).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def list_files(path: Path, format: str | None = None) -> list[work_units.DumpFile]:
    return work_units.list_dump_files(CorpusConfig(format=format), [str(path)])


@pytest.mark.usefixtures("extras")
def test_a_format_is_known_wherever_one_is_asked_for(tmp_path):
    path = write_star_lines(tmp_path / "shop.stars.gz", 300)
    [file] = list_files(path)
    assert file.layout.name == "star_lines"
    assert file.compression == "gz"
    tally = Tally()
    [unit] = work_units.cut_file(file, 1 << 20, str(tmp_path / "work"))
    records = list(work_units.read_records(unit, tally))
    assert len(records) == 300
    preview = read_preview(file)
    assert preview.count == 300
    assert name_outputs([file], "csv") == ["shop.scores.csv"]
    assert is_named_like_a_dump("watched/shop.stars.gz")
    [formats, automatic] = Dump.model_json_schema()["properties"]["format"]["anyOf"]
    assert "star_lines" in formats["enum"]
    assert automatic == {"type": "null"}
    [forced] = list_files(path, Dump(format="star_lines").format)
    assert forced.layout == file.layout
    with pytest.raises(ValueError, match="star_lines"):
        list_files(path, "star_line")


def test_an_objective_has_heads_that_begin_as_ours_do(extras):
    recipe = apply_settings(RECIPES["sample"], {"objective": "mlm+rts"})
    sizes, network = (100, recipe.architecture), objectives.find_objective("mlm+rts").load_network()
    assert network is extras["substitution"].SubstitutionModel
    model = network(*sizes, recipe.pretraining)
    initialize_weights(model, seed=0)
    ours = objectives.find_objective("electra").load_network()(
        *sizes, RECIPES["sample"].pretraining
    )
    initialize_weights(ours, seed=0)
    spread, expected = (
        head.out.weight.std().item() for head in (model.replaced_head, ours.discriminator_head)
    )
    assert spread == pytest.approx(expected, rel=0.3), "Glorot's range, not 0.02"
    costs = [MatrixFlops.derive(sizes[1], 100, name).per_position for name in ("mlm", "mlm+rts")]
    assert costs[0] < costs[1]
    with pytest.raises(ValueError, match="mlm"):
        PretrainingConfig(steps=1, batch=1, learning_rate=1.0, objective="mlm+rt")


def test_an_arm_is_fitted_exported_and_scored(extras, tmp_path):
    data, folder, test = (tmp_path / name for name in ("corpus", "bayes", "test"))
    write_corpus(data, reviews=300)
    result = finetune(FinetuneConfig(task="polarity", arm="bayes"), data, folder, evaluation=test)
    assert result.test["accuracy"] > 0.9
    exported = export([ExportCell("bayes", folder, test)], "polarity", data, tmp_path / "model")
    assert exported.kind == "bayes"
    texts = ["a great lamp", "an awful lamp"]
    scores = load_classifier(str(tmp_path / "model"), "fp32").score(texts)
    assert scores.argmax(1).tolist() == [1, 0]
    own = extras["bayes"].Bayes.load(folder, None).predict(texts)
    assert own.argmax(1).tolist() == [1, 0]


def test_an_arm_that_cannot_be_exported_fails_at_its_fit(extras, tmp_path, monkeypatch):
    bayes = extras["bayes"].Bayes
    monkeypatch.setattr(bayes, "export", lambda *given: bayes.fit(None))
    write_corpus(tmp_path / "corpus", reviews=60)
    config = FinetuneConfig(task="polarity", arm="bayes")
    with pytest.raises(TypeError):
        finetune(config, tmp_path / "corpus", tmp_path / "out")
    assert not (tmp_path / "out" / "result.json").exists()


def test_a_stage_is_made_in_a_child_process(extras, tmp_path):
    store = Store(tmp_path / "store")
    corpus = FakeStage("corpus", 1)
    write_corpus(store.folder(corpus), reviews=50)
    store.publish(corpus, {"kept": 50})
    counts = extras["word_counts"].WordCounts(inputs={"corpus": corpus})
    manifest = StageRunner(store, [], None).complete_stage(counts)
    words = json.loads((store.folder(counts) / "words.json").read_text(encoding="utf-8"))
    assert manifest["result"] == words
    assert sum(words.values()) > 50
    again = [sys.executable, "-m", "amazon_electra.flows.run_stage", str(store.root), counts.path]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {counts.path: words}
