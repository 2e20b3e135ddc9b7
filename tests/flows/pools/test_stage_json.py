"""Stages cross to another host as JSON, and are there what they were here."""

import json
from pathlib import Path

import pytest

from beam_jobs.job.errors import UserError
from flows.configuration.settings import fill_parameters
from flows.domain_adaptation import graph
from flows.runner.pools.stage_json import decode_stages, encode_stages, find_object
from flows.runner.stage_runner import Plan
from flows.runner.store import Store

HERE = {"dump", "report"}
"""Stages that no other host makes."""


def plan(store, *settings):
    parameters = fill_parameters(settings, dump={"paths": ["sample:50"]}, store=str(store))
    found = Plan(Store(store))
    graph(parameters, found)
    return [stage for stage, _ in found.stages if stage.name not in HERE]


def cross(stages, here, there):
    return decode_stages(json.loads(json.dumps(encode_stages(stages, here))), there)


def test_every_stage_keeps_its_fingerprint_and_its_command_line(tmp_path):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    stages = plan(here.root, "pretraining.steps=5")
    others = cross(stages, here.root, there.root)
    assert [one.fingerprint for one in others] == [one.fingerprint for one in stages]
    assert {one.name for one in stages} >= {"corpus", "vocabulary", "shards", "pretraining"}
    for one, other in zip(stages, others, strict=True):
        if one.name in ("finetuning", "evaluation"):
            continue  # they look into the folder of shards, which is not made here
        words, theirs = (s.arguments(at, at.folder(s)) for s, at in ((one, here), (other, there)))
        assert theirs == [word.replace(str(here.root), str(there.root)) for word in words]
        assert (other.label, other.tags, other.tracked) == (one.label, one.tags, one.tracked)


def test_a_published_start_crosses_with_its_generator_and_general_text(
    list_stages, encoder, tmp_path
):
    (tmp_path / "general.txt").write_text("An encyclopaedia.\n")
    start = [f"pretraining.{name}={encoder}" for name in ("start_from", "start_generator_from")]
    here, stages = list_stages(*start, f"pretraining.general_text={tmp_path / 'general.txt'}")
    made = [stages[name] for name in ("origin mini-bert", "general-text shards", "pre-training")]
    there = Store(tmp_path / "there")
    for one, other in zip(made, cross(made, here.root, there.root), strict=True):
        assert one.fingerprint == other.fingerprint
        words, theirs = (s.arguments(at, at.folder(s)) for s, at in ((one, here), (other, there)))
        assert theirs == [word.replace(str(here.root), str(there.root)) for word in words]


def test_the_root_of_the_store_stays_at_home(tmp_path):
    stages = plan(tmp_path / "here")
    assert str(tmp_path / "here" / "samples") not in json.dumps(
        encode_stages(stages, tmp_path / "here")["stages"]
    )
    [corpus, *_] = cross(stages, tmp_path / "here", tmp_path / "there")
    [path] = corpus.inputs["dump"].result["paths"]
    assert path == str(tmp_path / "there" / "samples" / "sample-50.json.gz")


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:run", "flows.runner.store:none", "flows.nothing:x"]
)
def test_nothing_else_can_be_named(name):
    with pytest.raises(UserError, match=name):
        find_object(name)


def test_code_of_another_version_is_told(tmp_path):
    stages = plan(tmp_path)
    told = json.dumps(encode_stages(stages, tmp_path))
    with pytest.raises(UserError, match=r"^it has no flows\.stages\.corpus:made_later$"):
        decode_stages(
            json.loads(told.replace("stages.corpus:format_arguments", "stages.corpus:made_later")),
            Path(tmp_path),
        )
