"""Study files: mistakes in one line that names the field, and what the form changes of them."""

import pytest

from amazon_electra.flows.configuration.form import StudyChoice, StudyForm
from amazon_electra.flows.store.stage import list_stages
from amazon_electra.flows.store.store import Store
from amazon_electra.flows.studies.study_file import (
    list_shipped_studies,
    load_study,
    parse_study,
)
from amazon_electra.flows.study import graph
from tests.flows.calls import cross
from tests.flows.forms import fill_parameters
from tests.flows.studies.loaded import write_form
from tests.refusals import refuses

ONE = {"name": "one", "encoder": "e"}
TWO = {"name": "two", "encoder": "random", "architecture": "arm:one"}
SHARDS = {"shards": "s"}
SAME = "arms.1.pretraining.same_flops_as"


def task(name, **own):
    return {"tasks": [{"task": name, "data": "${corpus}", **own}]}


def space(**choices):
    return {"search": {"space": choices}}


def arm(**own):
    """The arm that is wrong is the second."""
    return {"arms": [ONE, {"name": "x", **own}]}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"colour": 1}, "colour"),
        ({"tasks": []}, "tasks"),
        ({"seeds": [0, 1, 0]}, "seeds"),
        ({"arms": [ONE, ONE]}, "arms"),
        (task("stirs"), "tasks.0.task"),
        ({"tasks": 2 * task("stars")["tasks"]}, "tasks"),
        ({"settings": {"epoch": 1}}, "settings.epoch"),
        ({"arms": [ONE, {**TWO, "settings": {"batch": -3}}]}, "settings.batch"),
        (task("squad2", settings={"loss": "focal"}), "settings.loss"),
        (space(learnin_rate=[1e-3]), "search.space: learnin_rate"),
        (space(epochs={"low": 3, "high": 1}), "search.space: epochs"),
        (space(epochs=[1]) | task("stars", settings={"epochs": 3}), "search.space.epochs"),
        (arm(), "arms.1.encoder"),
        (arm(encoder="arm:one"), "arms.1.encoder"),
        (arm(encoder="e", pretraining={"recipe": "small"}), "arms.1.pretraining.shards"),
        (arm(pretraining=SHARDS | {"set": {"step": 1}}), "arms.1.pretraining.step"),
        (arm(pretraining=SHARDS | {"set": {"seed": 1}}), "arms.1.pretraining.set.seed"),
        (arm(pretraining=SHARDS | {"same_flops_as": "y"}), SAME),
        (arm(pretraining=SHARDS | {"same_flops_as": "one"}), SAME),
        (arm(pretraining=SHARDS | {"same_flops_as": "x"}), SAME),
        (arm(encoder="random"), "arms.1.architecture"),
        (arm(encoder="random", architecture="arm:x"), "arms.1.architecture"),
        (arm(encoder="tfidf") | task("squad2"), "arms.1.encoder"),
        (
            arm(pretraining=SHARDS | {"start_from": "org/mini", "set": {"layers": 3}}),
            "arms.1.pretraining.set.layers",
        ),
        ({"tasks": [{"task": "polarity", "data": "${reviews}"}]}, "tasks.0.data"),
        ({"tasks": [{"task": "polarity", "data": "none"}]}, "tasks.0.data none"),
        (arm(encoder="./none"), "arms.1.encoder ./none"),
        (arm(pretraining={"shards": "none"}), "arms.1.pretraining.shards none"),
    ],
)
def test_mistakes_are_named(changes, field, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("e", "s"):
        (tmp_path / name).mkdir()
    content = {"seeds": [0], "arms": [ONE, TWO], **task("polarity")} | changes
    with refuses(f"here: {field}"):
        parse_study(content, "here")


GENERAL = [
    {"name": "reviews", "pretraining": {"shards": "${shards}"}},
    {"name": "other", "pretraining": {"shards": "${general_shards}"}},
]
WRITTEN = {"seeds": [0], "arms": GENERAL, "tasks": [{"task": "polarity", "data": "${corpus}"}]}


@pytest.mark.parametrize(
    ("file", "settings", "choice", "field"),
    [
        (WRITTEN, [], {}, "study.general_text"),
        ({**WRITTEN, "arms": GENERAL[:1]}, [], {"general_text": ["g.txt"]}, "study.general_text"),
        ("encoders", [], {}, "pretraining.start_from"),
        ("objective", ["pretraining.steps=60"], {"general_text": ["x"]}, "pretraining.steps"),
        ("losses", [], {"settings": {"loss": "focal"}}, "loss"),  # every arm has its own
        ("losses", [], {"settings": {"seeds": "one"}}, "seeds"),
        ("nothing", [], {}, "study.file"),
        ("broken", [], {}, "study.file"),
    ],
)
def test_what_does_not_go_together_is_refused(file, settings, choice, field, tmp_path):
    (tmp_path / "broken").write_text("arms: [{name: a\n")
    if isinstance(file, dict):
        form = write_form(file, tmp_path, **choice)
    else:
        place = str(tmp_path / file) if file == "broken" else file
        chosen = {"study": {"file": place, **choice}, "recipe": "sample"}
        form = fill_parameters(settings, StudyForm, store=str(tmp_path), **chosen)
    with refuses(field=field):
        load_study(form)


def test_settings_of_the_command_replace_those_of_the_file(tmp_path, encoder):
    settings = {"n_dev": "100", "pretraining_seeds": "0,1", "steps": "80"}
    choice = {"file": "encoders", "settings": settings}
    start = [f"pretraining.start_from={encoder}"]
    study = load_study(fill_parameters(start, StudyForm, study=choice))
    assert (study.settings["n_dev"], study.pretraining_seeds) == (100, [0, 1])
    assert study.arms[0].pretraining.set == {"steps": 80}


@pytest.mark.parametrize("name", list_shipped_studies())
def test_a_shipped_study_is_planned_with_all_its_cells(name, tmp_path, encoder):
    (tmp_path / "general.txt").write_text("An encyclopaedia says so.")
    texts = [str(tmp_path / "general.txt")] if name == "objective" else []
    settings = [f"pretraining.start_from={encoder}"] if name in ("encoders", "labels") else []
    given = {"dump": {"paths": ["sample:50"]}, "store": str(tmp_path / "store")}
    choice = StudyChoice(file=name, general_text=texts)
    form = fill_parameters(settings, StudyForm, **given, recipe="sample", study=choice)
    study, store = load_study(form), Store(form.store)
    stages = [stage for stage, _ in list_stages(graph(form, study, store), store)]
    for one in (stage for stage in stages if stage.has_job):
        assert cross(one).fingerprint == one.fingerprint
    cells = {s.label.partition(" · seed ")[0] for s in stages if s.name == "evaluation"}
    assert {f"{arm.name} · {task.name}" for arm in study.arms for task in study.tasks} <= cells
    assert stages[-1].name == "study"
