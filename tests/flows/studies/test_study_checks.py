"""What is wrong with a study is told in one line that names the field, before anything starts."""

import re

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.study_file import Study
from amazon_electra.flows.studies import study_checks, study_reading

ONE = {"name": "one", "encoder": "e"}
TWO = {"name": "two", "encoder": "random", "architecture": "arm:one"}
SHARDS = {"shards": "s"}
TITLES = {"corpus": "c", "start_from": "org/mini"}


def content(**changes):
    return {
        "seeds": [0],
        "arms": [ONE, TWO],
        "tasks": [{"task": "polarity", "data": "d"}],
    } | changes


def arms(*described):
    return {"arms": [ONE, *described]}


def one_arm(**own):
    return {"arms": [{"name": "x", **own}]}


def task(name, **own):
    return {"tasks": [{"task": name, "data": "d", **own}]}


def space(**choices):
    return {"search": {"space": choices}}


def parse(**changes):
    return study_reading.parse_study(content(**changes), "here")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"colour": 1}, "colour"),
        ({"tasks": []}, "tasks"),
        ({"arms": []}, "arms"),
        ({"seeds": [0, 1, 0]}, "seeds"),
        (arms(ONE), "arms: .*one"),
        (task("stars", seeds=[4, 4]), r"tasks\[0\].seeds"),
        ({"tasks": 2 * task("stars")["tasks"]}, "tasks: .*`title`.*: stars"),
        ({"settings": {"epoch": 1}}, "settings.epoch: .* learning_rates"),
        ({"settings": {"epochs": 0}}, "settings.epochs"),
        (arms({**TWO, "settings": {"batch": -3}}), r"arms\[1\].settings.batch"),
        (space(learnin_rate=[1e-3]), "search.space.learnin_rate: .* learning_rate,"),
        (space(epochs={"low": 3, "high": 1}), "search.space.epochs"),
        (task("squad2", settings={"loss": "focal"}), "one on squad2: loss"),
        (space(max_length=[64]), "search.space.max_length"),
        (
            space(batch=[8, 16]) | arms({**TWO, "settings": {"batch": 8}}),
            r"search.space.batch: arms\[1\].settings.batch",
        ),
        (
            space(epochs=[1]) | task("stars", settings={"epochs": 3}),
            r"search.space.epochs: tasks\[0\].settings.epochs",
        ),
        (space(soft_weight=[0.5]), "search.space.soft_weight"),
        ({"comparisons": [["one", "three"]]}, r"comparisons\[0\]: .*'three'.* one, two"),
    ],
)
def test_mistakes_are_named(changes, field):
    with pytest.raises(UserError, match=f"here: {field}"):
        parse(**changes)


SAME = "pretraining.same_flops_as"


@pytest.mark.parametrize(
    ("arm", "field"),
    [
        ({}, ".*`pretraining`"),
        ({"encoder": "e", "pretraining": SHARDS}, ".*`pretraining`"),
        ({"pretraining": SHARDS | {"set": {"step": 1}}}, "pretraining.set: `step='1'`"),
        ({"pretraining": SHARDS | {"same_flops_as": "y"}}, f"{SAME}: .*'y'.* one"),
        ({"pretraining": SHARDS | {"same_flops_as": "one"}}, f"{SAME}: 'one'"),
        ({"pretraining": SHARDS | {"same_flops_as": "x"}}, f"{SAME}: 'x'"),
        (
            {"pretraining": SHARDS | {"same_flops_as": "x", "same_tokens_as": "x"}},
            "pretraining: .*same_tokens_as",
        ),
        ({"encoder": "tfidf", "teacher": "arm:one"}, "teacher"),
        ({"encoder": "half"}, "encoder: .*`teacher`"),
        ({"encoder": "half", "teacher": "arm:y"}, "teacher: .*'y'.* one; x"),
        ({"encoder": "half", "teacher": "arm:x"}, "teacher: .*x ← x"),
        ({"encoder": "random"}, "architecture"),
        ({"encoder": "e", "architecture": "arm:one"}, "architecture"),
        ({"encoder": "random", "architecture": "arm:x"}, "architecture: 'x'"),
        (
            {"pretraining": SHARDS | {"start_from": "org/mini", "set": {"layers": 3}}},
            "pretraining.set.layers: .*org/mini",
        ),
        ({"pretraining": {"corpus": "c"}}, "pretraining.start_from: "),
        ({"pretraining": TITLES | {"shards": "s"}}, "pretraining.shards: "),
        ({"pretraining": TITLES | {"same_tokens_as": "one"}}, "pretraining.same_tokens_as: "),
        ({"pretraining": TITLES | {"set": {"steps": 9}}}, "pretraining.set: `steps="),
    ],
)
def test_mistakes_of_an_arm_are_named(arm, field):
    with pytest.raises(UserError, match=rf"here: arms\[1\](\.|: ){field}"):
        parse(**arms({"name": "x", **arm}))


@pytest.mark.parametrize(
    ("first", "second"),
    [({"n_train": 100, "epochs": 4}, {"epochs": 4.0}), ({"batch": 32}, {"batch": 16})],
)
def test_two_tasks_that_resolve_to_equal_settings_are_refused(first, second):
    tasks = [
        {"task": "polarity", "data": "d", "title": "a", "settings": first},
        {"task": "polarity", "data": "d", "title": "b", "settings": second},
    ]
    own = [{**arm, "settings": {"batch": 16}} for arm in (ONE, TWO)]
    with pytest.raises(UserError, match=r"'b'.*'a'"):
        parse(recipe="sample", arms=own, tasks=tasks)
    for others in (
        [tasks[0], tasks[1] | {"data": "e"}],
        [tasks[0], tasks[1] | {"task": "stars"}],
        [tasks[0], tasks[1] | {"settings": second | {"n_train": 101}}],
    ):
        parse(recipe="sample", arms=own, tasks=others)


def test_arms_that_teach_each_other_are_told():
    taught = [{"name": a, "encoder": "e", "teacher": f"arm:{b}"} for a, b in ("ab", "bc", "ca")]
    with pytest.raises(UserError, match=r"arms\[0\].teacher: .*a ← b ← c ← a"):
        parse(arms=taught)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tasks": [{"task": "polarity", "data": "none"}]}, r"tasks\[0\].data: none"),
        (one_arm(encoder="./none"), r"arms\[0\].encoder: ./none"),
        (one_arm(encoder="half", teacher="electra"), "teacher: electra"),
        (one_arm(pretraining={"shards": "none"}), "pretraining.shards: none"),
        (
            one_arm(pretraining={"shards": "<s>", "start_from": "/nowhere"}),
            "pretraining.start_from: /nowhere",
        ),
    ],
)
def test_what_must_be_there_is_looked_for(changes, words, made, monkeypatch):
    monkeypatch.chdir(made)
    there = one_arm(encoder="electra") | {"tasks": [{"task": "polarity", "data": "corpus"}]}
    assert list(study_checks.find_missing_places(Study(**there))) == []
    [mistake] = study_checks.find_missing_places(Study(**there | changes))
    assert re.search(words, mistake)


def test_what_is_not_yaml_is_told_in_one_line(tmp_path):
    file = tmp_path / "here"
    file.write_text("arms: [{name: a\n")
    with pytest.raises(UserError, match=r"here: [^\n]*line 1, column 8[^\n]*$"):
        study_reading.read_yaml(file)


def test_the_first_arm_is_compared_with_each_of_the_others_unless_the_file_says_otherwise():
    three = [{**ONE, "name": name} for name in ("one", "two", "three")]
    assert parse(arms=three).pairs == [("one", "two"), ("one", "three")]
    assert parse(arms=three, comparisons=[("three", "two")]).pairs == [("three", "two")]
