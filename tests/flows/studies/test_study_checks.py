"""What is wrong with a study is told in one line that names the field, before anything starts."""

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.study_file import Study
from amazon_electra.flows.studies import study_checks, study_reading

ONE = {"name": "one", "encoder": "e"}
TWO = {"name": "two", "encoder": "random", "architecture": "arm:one"}
SHARDS = {"shards": "s"}
TITLES = {"corpus": "c", "start_from": "org/mini"}
SAME = "arms[1].pretraining.same_flops_as"


def content(**changes):
    return {
        "seeds": [0],
        "arms": [ONE, TWO],
        "tasks": [{"task": "polarity", "data": "d"}],
    } | changes


def one_arm(**own):
    return {"arms": [{"name": "x", **own}]}


def task(name, **own):
    return {"tasks": [{"task": name, "data": "d", **own}]}


def space(**choices):
    return {"search": {"space": choices}}


def parse(**changes):
    return study_reading.parse_study(content(**changes), "here")


SHARED = {"pretraining": SHARDS}
TAUGHT = [{"name": a, "encoder": "e", "teacher": f"arm:{b}"} for a, b in ("ab", "bc", "ca")]


def one_more(**own):
    """The arm that is wrong is the second."""
    return {"arms": [ONE, {"name": "x", **own}]}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"colour": 1}, "colour"),
        ({"tasks": []}, "tasks"),
        ({"arms": []}, "arms"),
        ({"seeds": [0, 1, 0]}, "seeds"),
        ({"arms": [ONE, ONE]}, "arms"),
        (task("stars", seeds=[4, 4]), "tasks[0].seeds"),
        (task("stirs"), "tasks[0].task"),
        ({"tasks": 2 * task("stars")["tasks"]}, "tasks"),
        ({"settings": {"epoch": 1}}, "settings.epoch"),
        ({"settings": {"epochs": 0}}, "settings.epochs"),
        ({"arms": [ONE, {**TWO, "settings": {"batch": -3}}]}, "arms[1].settings.batch"),
        (space(learnin_rate=[1e-3]), "search.space.learnin_rate"),
        (space(epochs={"low": 3, "high": 1}), "search.space.epochs"),
        (task("squad2", settings={"loss": "focal"}), "tasks[0].settings.loss"),
        (space(max_length=[64]), "search.space.max_length"),
        (
            space(batch=[8, 16]) | {"arms": [ONE, {**TWO, "settings": {"batch": 8}}]},
            "search.space.batch",
        ),
        (space(epochs=[1]) | task("stars", settings={"epochs": 3}), "search.space.epochs"),
        (space(soft_weight=[0.5]), "search.space.soft_weight"),
        (one_more(), "arms[1].encoder"),
        (one_more(encoder="e", **SHARED), "arms[1].encoder"),
        (one_more(encoder="arm:one"), "arms[1].encoder"),
        (one_more(encoder="e", pretraining={"recipe": "small"}), "arms[1].pretraining.shards"),
        (one_more(pretraining=SHARDS | {"set": {"step": 1}}), "arms[1].pretraining.set"),
        (one_more(pretraining=SHARDS | {"set": {"seed": 1}}), "arms[1].pretraining.set.seed"),
        *(
            (one_more(pretraining=SHARDS | {"same_flops_as": other}), SAME)
            for other in ("y", "one", "x")
        ),
        (one_more(encoder="tfidf", teacher="arm:one"), "arms[1].teacher"),
        (one_more(encoder="half"), "arms[1].teacher"),
        (one_more(encoder="half", teacher="arm:y"), "arms[1].teacher"),
        (one_more(encoder="half", teacher="arm:x"), "arms[1].teacher"),
        ({"arms": TAUGHT}, "arms[0].teacher"),
        (one_more(encoder="random"), "arms[1].architecture"),
        (one_more(encoder="e", architecture="arm:one"), "arms[1].architecture"),
        (one_more(encoder="random", architecture="arm:x"), "arms[1].architecture"),
        (
            one_more(pretraining=SHARDS | {"start_from": "org/mini", "set": {"layers": 3}}),
            "arms[1].pretraining.set.layers",
        ),
        (one_more(pretraining={"corpus": "c"}), "arms[1].pretraining.start_from"),
        (one_more(pretraining=TITLES | {"shards": "s"}), "arms[1].pretraining.shards"),
        (
            one_more(pretraining=TITLES | {"same_tokens_as": "one"}),
            "arms[1].pretraining.same_tokens_as",
        ),
        (one_more(pretraining=TITLES | {"set": {"steps": 9}}), "arms[1].pretraining.set"),
    ],
)
def test_mistakes_are_named(changes, field):
    with pytest.raises(UserError) as told:
        parse(**changes)
    assert str(told.value).startswith(f"here: {field}: ")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tasks": [{"task": "polarity", "data": "none"}]}, "tasks[0].data: none"),
        (one_arm(encoder="./none"), "arms[0].encoder: ./none"),
        (one_arm(encoder="half", teacher="electra"), "arms[0].teacher: electra"),
        (one_arm(pretraining={"shards": "none"}), "arms[0].pretraining.shards: none"),
        (
            one_arm(pretraining={"shards": "${shards}", "start_from": "/nowhere"}),
            "arms[0].pretraining.start_from: /nowhere",
        ),
    ],
)
def test_what_must_be_there_is_looked_for(changes, field, made, monkeypatch):
    monkeypatch.chdir(made)
    there = one_arm(encoder="electra") | {"tasks": [{"task": "polarity", "data": "corpus"}]}
    assert list(study_checks.find_missing_places(Study(**there))) == []
    [mistake] = study_checks.find_missing_places(Study(**there | changes))
    assert mistake.startswith(f"{field}: ")


def test_what_is_not_yaml_is_told_in_one_line(tmp_path):
    file = tmp_path / "here"
    file.write_text("arms: [{name: a\n")
    with pytest.raises(UserError) as told:
        study_reading.read_yaml(file)
    assert (told.value.field, told.value.value) == ("study.file", file)
    assert "line 1, column 8" in str(told.value)
    assert "\n" not in str(told.value)
