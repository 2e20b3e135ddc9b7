"""What the report is told of a run: the command that makes it again, and what its arms' encoders have seen."""

import shlex

import pytest

from flows.cli import asked, parser
from flows.completion import Plan
from flows.domain_adaptation import graph
from flows.parameters import Addition, Parameters, StudyChoice
from flows.settings import filled
from flows.stages import report, study
from flows.stages.finetuning import Cell
from flows.store import Known, Stage, Store
from flows.study_command import asked as asked_study
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


def read_back(command):
    words = shlex.split(command)
    assert words[0] == "amazon-electra"
    return parser().parse_args(words[1:])


def test_the_command_of_a_run_gives_the_same_form(tmp_path):
    form = filled(Parameters, SETTINGS, preset="small", store=str(tmp_path / "a store"))
    assert asked(read_back(report.command(form))) == form


def test_the_command_of_an_addition_gives_the_same_form(tmp_path):
    settings = ["dump.paths=b.csv", "increment.base=0123", "increment.replay_ratio=0.25", "finetuning.seeds=5"]
    form = filled(Addition, [*settings, "increment.learning_rate=1e-4"], store=str(tmp_path))
    assert asked(read_back(report.command(form))) == form


def test_what_is_as_by_default_is_not_in_the_command(tmp_path):
    command = report.command(filled(Parameters, [], store=str(tmp_path)))
    assert command == f"amazon-electra run --dump sample:20000 --store {tmp_path} --preset tiny"


def test_the_command_of_a_study_gives_the_same_study(tmp_path):
    parameters = filled(Parameters, SETTINGS, preset="small", store=str(tmp_path))
    choice = StudyChoice(
        file="domain_adaptation",
        settings={"epochs": "2"},
        general_text=["/some/g x.txt"],
        at_once=3,
        variables={"steps": "9"},
    )
    command = study.command(parameters, choice, tmp_path / "study.yaml")
    assert asked_study(read_back(command)) == (parameters, choice)
    own = StudyChoice(own={"arms": [{"name": "a", "encoder": "e"}], "tasks": [{"task": "stars", "data": "d"}]})
    assert f"study {tmp_path / 'study.yaml'} --preset small" in study.command(parameters, own, tmp_path / "study.yaml")


@pytest.fixture
def made(tmp_path):
    """The stages of a run whose encoder is complete."""
    store = Store(tmp_path / "store")
    plan = Plan(store)
    graph(filled(Parameters, ["finetuning.seeds=0"], dump={"paths": ["sample:50"]}, store=str(store.root)), plan)
    stages = {stage.label: publish(store, stage) for stage, _ in plan.stages[:5]}
    return store, stages


def cell(arm, corpus, encoder):
    finetuned = Stage("finetuning", 1, {}, {"corpus": corpus, **({"encoder": encoder} if encoder else {})})
    return Cell(arm, "polarity", 0, finetuned, finetuned)


def test_arms_are_known_by_their_lineage(made):
    store, stages = made
    corpus, encoder = stages["corpus"], stages["pre-training"]
    later = publish(store, Stage("corpus", 2, {"later": True}, {"earlier": corpus}))
    other = publish(store, Stage("corpus", 2, {"other": True}))
    grown = publish(store, Stage("pretraining", 1, {"n": 1}, {"corpus": later, "base": encoder}))
    elsewhere = publish(store, Stage("pretraining", 1, {"n": 2}, {"corpus": other}))
    cells = [
        cell("pre-trained", corpus, grown),
        cell("random", corpus, None),
        cell("champion", corpus, Known("pretraining", 1, {}, known=elsewhere.fingerprint)),
        cell("published", corpus, Stage("published", 1, {"name": "bert"})),
    ]
    assert report.described(store, "T", Parameters(), [], encoder, cells)["arms"] == [
        {"name": "pre-trained", "data_known": True, "held_out": ["polarity"]},
        {"name": "random"},
        {"name": "champion", "data_known": True, "held_out": []},
        {"name": "published", "data_known": False},
    ]
