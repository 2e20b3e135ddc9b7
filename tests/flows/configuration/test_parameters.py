"""Settings: defaults that work, bounds that hold, mistakes that name the field."""

import json
from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError

from beam_jobs.config import SHORTEST_SEQUENCE
from beam_jobs.core.errors import UserError
from beam_jobs.reading.formats import FORMATS
from flows.configuration import study_file
from flows.configuration.form import (
    Addition,
    Format,
    Parameters,
    PresetName,
    Settings,
    fill_parameters,
)
from flows.configuration.form_tools import fill_form
from flows.configuration.study_file import StudyChoice
from flows.watch import Watch
from model.options import SMALLEST_VOCABULARY
from model.presets import PRESETS


def test_the_presets_of_the_form_are_the_models():
    assert get_args(PresetName) == tuple(PRESETS)
    assert get_args(Format) == ("", *FORMATS)


def test_every_field_of_the_form_has_a_description_and_a_default():
    forms = [*Parameters.model_fields.values(), *Addition.model_fields.values()]
    sections = [f.annotation for f in forms if isinstance(f.annotation, type)]
    fields = {
        (section.__name__, name): field
        for section in sections
        if issubclass(section, Settings)
        for name, field in section.model_fields.items()
    }
    parts = (
        StudyChoice,
        study_file.Study,
        study_file.Arm,
        study_file.StudyTask,
        study_file.Pretraining,
    )
    fields |= {
        (part.__name__, name): field for part in parts for name, field in part.model_fields.items()
    }
    assert len(fields) > 50
    assert [
        name for name, field in fields.items() if not field.description and not nested(field)
    ] == []
    required = {("Arm", "name"), ("StudyTask", "task"), ("StudyTask", "data")}
    assert {name for name, field in fields.items() if field.is_required()} == required


def nested(field):
    """A group of fields, described by what it is."""
    return (
        isinstance(field.annotation, type)
        and issubclass(field.annotation, BaseModel)
        and field.annotation.__doc__
    )


def test_settings_reach_their_fields():
    given = fill_parameters(
        [
            "pretraining.steps=50",
            "finetuning.seeds=3,4",
            'finetuning.tasks=["stars"]',
            "vocabulary.lower_case=false",
        ],
        preset="small",
    )
    assert given.pretraining.steps == 50
    assert given.finetuning.seeds == [3, 4]
    assert given.finetuning.tasks == ["stars"]
    assert given.vocabulary.lower_case is False
    assert given.preset == "small"


def test_what_is_no_field_of_pretraining_is_a_setting_of_the_trainer():
    assert fill_parameters(["pretraining.learning_rate=5e-4"]).pretraining.settings == {
        "learning_rate": "5e-4"
    }


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("pretraining.steps=-1", "pretraining.steps: must be greater than or equal to 0"),
        ("finetuning.seeds=x", "finetuning.seeds.0"),
        ("finetuning.seeds=0,1,0", "finetuning.seeds: 0 is named twice"),
        ("finetuning.tasks=stars,stars", "finetuning.tasks: stars is named twice"),
        ("finetuning.tasks=polarity,sentiment", "finetuning.tasks.1"),
        ("finetuning.seed=1", "no such field; there are arms"),
        ("corpus.split=80/20", "corpus.split"),
        ("models.size=3", "no such section"),
        ("preset=huge", "preset: must be 'tiny'"),
        ("dump.paths=sample:many", "sample:NUMBER"),
        ("dump.paths=sample:0", "sample:NUMBER"),
        ("dump.columns=txt=body", "dump.columns: txt: write FIELD=NAME,…; the fields are text"),
        ("dump.format=xml", "dump.format"),
        ("dump.encoding=utf-9", "dump.encoding: not an encoding"),
        (
            "corpus.split=pretrain=80,train=80,dev=4,test=8",
            "corpus.split: the shares add up to 172, not to 100",
        ),
        (
            "corpus.split=pretrain=0,train=80,dev=10,test=10",
            "corpus.split: pretrain must be at least 1",
        ),
        (
            "vocabulary.size=199",
            "vocabulary.size: write 200 or more, or 0 for what the preset says",
        ),
        (
            "shards.max_length=15",
            "shards.max_length: write 16 or more, or 0 for what the preset says",
        ),
        (
            "finetuning.arms=pre-trained,published",
            "finetuning.published is empty: name the model of the arm",
        ),
        (
            "finetuning.arms=champion,base",
            "finetuning.arms: champion and base may be nobody; name pre-trained, random",
        ),
        ("corpus.languages=english", "corpus.languages.0"),
        ("pretraining.lerning_rate=3", "pretraining.settings: lerning_rate: no such field"),
        (
            'pretraining.settings={"lerning_rate": "3"}',
            "pretraining.settings: lerning_rate: no such field",
        ),
        ("pretraining.batch=abc", "pretraining.settings: batch=abc: must be a valid integer"),
        ("finetuning.published=/nowhere", "finetuning.published: no folder /nowhere"),
        ("finetuning.published=no name", "finetuning.published: no name is no folder"),
        ("finetuning.seeds=[0,", r"--set finetuning.seeds=\[0,: not valid JSON"),
        ('pretraining.settings={"a"', "--set pretraining.settings=.*not valid JSON"),
        ("steps", "write --set section.field=value"),
    ],
)
def test_a_mistake_names_the_field(setting, words):
    with pytest.raises(UserError, match=words) as told:
        fill_parameters([setting])
    assert "\n" not in str(told.value)


def test_a_field_of_the_form_is_not_taken_as_another_setting():
    for form, section, name in (
        (Parameters, "pretraining", "steps"),
        (Addition, "increment", "warmup"),
    ):
        with pytest.raises(UserError, match=rf"settings: {name}: write it as {section}\.{name}"):
            fill_form(form, [f'{section}.settings={{"{name}": "5"}}'])


def test_an_addition_has_steps_or_epochs():
    with pytest.raises(UserError, match="increment: give steps or epochs, not both"):
        fill_form(Addition, ["increment.steps=5", "increment.epochs=2"])


def test_the_least_values_of_the_form_are_the_jobs():
    least = fill_parameters(
        [f"vocabulary.size={SMALLEST_VOCABULARY}", f"shards.max_length={SHORTEST_SEQUENCE}"]
    )
    assert (least.vocabulary.size, least.shards.max_length) == (200, 16)


def test_an_addition_is_compared_with_whom_there_is():
    assert fill_form(Addition, ["finetuning.arms=champion"]).finetuning.arms == ["champion"]
    assert Addition().finetuning.arms == ["pre-trained", "champion", "published"]
    with pytest.raises(UserError, match=r"finetuning\.published is empty"):
        fill_form(Addition, ["finetuning.arms=published"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            ("finetuning.arms=random",),
            "promotion.mode=automatic needs pre-trained among finetuning.arms",
        ),
        (("finetuning.tasks=stars",), "promotion.tasks: polarity is not among finetuning.tasks"),
    ],
)
@pytest.mark.parametrize("form", [Parameters, Addition])
def test_a_promotion_that_could_not_be_decided_is_refused_at_once(form, settings, words):
    with pytest.raises(UserError, match=words):
        fill_form(form, ["promotion.mode=automatic", *settings])
    fill_form(form, settings)


def test_a_mistake_in_an_addition_names_its_own_section():
    with pytest.raises(UserError, match=r"--set finetuning\.seed: no such field; there are arms"):
        fill_form(Addition, ["finetuning.seed=1"])
    with pytest.raises(UserError, match=r"increment\.settings: lerning_rate: no such field"):
        fill_form(Addition, ["increment.lerning_rate=1"])


@pytest.mark.parametrize(
    "address",
    [
        "https://user:TOPSECRET@host/x.json.gz",
        "s3://KEY:TOPSECRET@bucket/*",
        "s3://KEY:TOP/SECRET@bucket/*",
        "https://b.s3.amazonaws.com/x.json?X-Amz-Expires=60&X-Amz-Signature=TOPSECRET",
        "abfs://container@account.dfs.core.windows.net/x.json?sv=2024&sig=TOPSECRET",
        "https://host/x.json?access_token=TOPSECRET",
        "https://TOPSECRET@host/x.json",
        "https://host/x.json?v=1&access_key=TOPSECRET",
        "https://host/x.json?AccessKeyId=TOPSECRET",
        "https://host/x.json?key=TOPSECRET",
        "https://host/x.json?auth=TOPSECRET",
        "https://host/x.json?authorization=TOPSECRET",
        "https://host/x.json?pwd=TOPSECRET",
        "https://host/x.json?passwd=TOPSECRET",
        "https://u:12/TOPSECRET@host/x.json",
        "s3://u:12/TOPSECRET@bucket",
        "s3://TOPSECRET@bucket/x.json",
    ],
)
@pytest.mark.parametrize("field", ["dump.paths", "corpus.withhold", "finetuning.published"])
def test_an_address_with_a_secret_is_refused_and_not_repeated(field, address):
    with pytest.raises(
        UserError, match=f"{field}.*: an address with a password or a signature in it"
    ) as told:
        fill_parameters(
            [f"{field}={json.dumps([address]) if field != 'finetuning.published' else address}"]
        )
    assert "AWS_SECRET_ACCESS_KEY" in str(told.value)
    assert "SECRET@" not in str(told.value)
    assert "=TOP" not in str(told.value)
    with pytest.raises(ValidationError) as raised:
        Watch(places=[address])
    assert "places.0" in str(raised.value)
    assert "TOP" not in str(raised.value)


def test_addresses_without_a_secret_are_taken():
    paths = [
        *(
            "s3://bucket/a@b:c/*.json",
            "abfs://container@account.dfs.core.windows.net/x",
            "https://host:8080/a@b.json",
        ),
        *(
            "https://host/x.json?versionId=abc&generation=1&monkey=1&author=2&keyword=3",
            "file:///dumps/x.json",
            "dumps/a:b@c.json",
        ),
        *("gs://bucket/x.json", "az://container/x.json", "sample:20"),
    ]
    assert fill_parameters([], dump={"paths": paths}).dump.paths == paths


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("zip://a.json::s3://b/x.zip", "chained addresses"),
        ("reference://::http://host/x.json", "chained addresses"),
        ("simplecache::https://host/x.json", "chained addresses"),
        ("hdfs://name-node:8020/x.json", "hdfs:// addresses are not opened"),
        ("ssh://user@host/x.json", "ssh:// addresses are not opened"),
        ("local:///etc/passwd", "local:// addresses are not opened"),
    ],
)
def test_an_address_is_of_a_known_kind(address, why, monkeypatch):
    for field in ("dump.paths", "corpus.withhold"):
        with pytest.raises(UserError, match=f"{field}.*: .*{why}"):
            fill_parameters([f"{field}={json.dumps([address])}"])
    with pytest.raises(ValidationError, match=r"not opened|chained"):
        Watch(places=[address])
    monkeypatch.setenv("AMAZON_ELECTRA_ADDRESS_SCHEMES", "hdfs, ssh")
    if address.startswith("hdfs"):
        assert Watch(places=[address]).places == [address]
