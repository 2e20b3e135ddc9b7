"""What the report is told of a run: the command that makes it again, and what its arms' encoders
have seen.
"""

import shlex
import sys

import pytest

from amazon_electra.flows.cli import running
from amazon_electra.flows.cli.main import run_words
from amazon_electra.flows.configuration.form import StudyChoice, StudyForm
from amazon_electra.flows.policy import Counts
from amazon_electra.flows.stages import report
from amazon_electra.flows.stages.cells import list_cells
from amazon_electra.flows.stages.finetuning import Finetuned
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_file import load_study
from amazon_electra.model.finetuning.config import FinetuneConfig
from amazon_electra.model.report.inputs import ArmFacts
from tests.flows.fakes import FakeStage
from tests.flows.forms import fill_parameters
from tests.flows.made import publish

SETTINGS = [
    "dump.paths=my reviews.json,b.csv",
    "corpus.split=pretrain=70,train=10,dev=10,test=10",
    "corpus.withhold=a file.csv",
    "vocabulary.lower_case=false",
    "pretraining.steps=500",
    "pretraining.learning_rate=5e-4",
    "finetuning.seeds=3,4",
    "finetuning.learning_rates=1e-3",
]


def read_back(command, name, monkeypatch):
    """Return what the command calls a function of flows/cli/running.py with."""
    program, *words = shlex.split(command)
    called = []
    monkeypatch.setattr(running, name, lambda *given: called.extend(given) or sys.exit())
    with pytest.raises(SystemExit):
        run_words(words)
    return program, *called


def test_the_command_of_a_run_gives_the_same_form(tmp_path, monkeypatch):
    form = fill_parameters(SETTINGS, recipe="small", store=str(tmp_path / "a store"))
    command = report.format_command(form, "run")
    read = read_back(command, "execute_graph", monkeypatch)
    assert read[:2] == ("amazon-electra", form)


def test_the_command_of_a_study_gives_the_same_study(tmp_path, monkeypatch):
    unread = ("finetuning", "pretraining")
    settings = [setting for setting in SETTINGS if not setting.startswith(unread)]
    choice = StudyChoice(
        file="objective",
        settings={"n_dev": "300", "seeds": "0,1"},
        general_text=["/some/g x.txt"],
        at_once=3,
    )
    form = fill_parameters(settings, StudyForm, recipe="small", store=str(tmp_path), study=choice)
    study = load_study(form)
    read = read_back(
        report.format_command(form, "study", "objective"), "execute_study", monkeypatch
    )
    assert read[:3] == ("amazon-electra", form, study)


@pytest.fixture
def made(list_stages):
    """The stages of a run whose encoder is complete."""
    store, stages = list_stages()
    names = "dump", "corpus", "vocabulary", "shards", "pretraining"
    kept = {label: stage for label, stage in stages.items() if stage.name in names}
    return store, {label: publish(store, stage) for label, stage in kept.items()}


def cell(arm, corpus, encoder):
    inputs = {"data": corpus, **({"encoder": encoder} if encoder else {})}
    labels = {"arm": arm, "task": "polarity", "seed": "0"}
    return Finetuned(FinetuneConfig(task="polarity"), inputs, title=arm, labels=labels)


def describe(store, made, encoder, cells, **more):
    p = fill_parameters(recipe="sample")
    dump = FakeStage("dump", result={"name": "d"})
    return report.build_report_stage(p, dump, made, encoder, cells, **more).describe(store)


def test_arms_are_known_by_their_lineage(made):
    store, stages = made
    corpus, encoder = stages["corpus"], stages["pre-training"]
    other = publish(store, FakeStage("corpus", 2, {"other": True}))
    elsewhere = publish(store, FakeStage("pretraining", 1, {"n": 2}, {"corpus": other}))
    cells = [
        cell("pre-trained", corpus, encoder),
        cell("random", corpus, None),
        cell("champion", corpus, FakeStage("pretraining", 1, {}, known=elsewhere.fingerprint)),
        cell("published", corpus, FakeStage("external", 1, {"name": "bert"})),
    ]
    told = describe(store, [], encoder, cells).arms
    assert told == [
        ArmFacts(name="pre-trained", data_known=True, held_out=["polarity"], tokens=200_000),
        ArmFacts(name="random", data_known=True),
        ArmFacts(name="champion", data_known=True, held_out=[], tokens=200_000),
        ArmFacts(name="published", data_known=False),
    ]


def test_from_a_published_encoder_the_arm_of_the_model_is_compared_with_the_others(made):
    store, stages = made
    corpus, encoder = stages["corpus"], stages["pre-training"]
    origin = publish(store, FakeStage("origin", 1, {"name": "bert"}))
    model = FakeStage("model", 1, {})
    folder = store.folder(model)
    folder.mkdir(parents=True)
    for name in ("results.json", "suspicious.csv", "errors.csv", "cost.json"):
        (folder / name).write_text('{"arm": "TF-IDF"}')
    publish(store, model)
    cells = [cell(arm, corpus, encoder) for arm in ("bert, frozen", "adapted", "TF-IDF")]
    every = [*stages.values(), origin]
    found = describe(store, every, encoder, cells, models=[model])
    assert [arm.name for arm in found.arms] == ["TF-IDF", "bert, frozen", "adapted"]


LOGISTIC = "origin + logistic regression"
CORPUS, ORIGIN = FakeStage("corpus", 1, {}), FakeStage("origin", 1, {"name": "bert"})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def fill(store, *settings, recipe="published"):
    """The form of a run with one task."""
    given = {"dump": {"paths": ["sample:50"]}, "store": str(store.root), "recipe": recipe}
    return fill_parameters([*settings, "finetuning.tasks=polarity", "finetuning.seeds=0"], **given)


@pytest.mark.parametrize(
    ("labelled", "points"),
    [
        (1601, [(arm, n) for n in (50, 200, 800) for arm in ("TF-IDF", LOGISTIC)]),
        (1600, [("TF-IDF", 50), ("TF-IDF", 200)]),
        (400, []),
    ],
)
def test_many_labels_give_a_curve(store, encoder, labelled, points):
    p = fill(store, f"pretraining.start_from={encoder}", "finetuning.arms=tfidf,frozen,origin")
    counts = Counts({"polarity": labelled}, 0, 0)
    chosen = p, p.finetuning.arms, None, counts
    cells = [c for c in list_cells(*chosen, CORPUS, ORIGIN, origin=ORIGIN) if "labels" in c.labels]
    assert [(cell.labels["arm"], int(cell.labels["labels"])) for cell in cells] == points
    for cell in cells:
        settings = cell.parameters["settings"]
        assert (settings["n_train"], settings["n_test"]) == (int(cell.labels["labels"]), 1000)
