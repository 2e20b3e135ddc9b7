"""The files of the Flex Templates say what the jobs' options say."""

import json
import re
from inspect import Parameter, signature
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from amazon_electra.beam_jobs import corpus_job, shards_job
from amazon_electra.beam_jobs.config import CorpusConfig, ShardsConfig
from amazon_electra.beam_jobs.core.settings import parse_field, strip_none

ROOT = Path(__file__).parents[3]
DATAFLOW = ROOT / "deploy" / "dataflow"
JOBS = {
    "corpus_job": (corpus_job.make_corpus, CorpusConfig),
    "shards_job": (shards_job.make_shards, ShardsConfig),
}
LEFT_OUT = {  # a command can set them; who starts a template seldom has to
    *("format", "records", "sheet", "encoding", "max_record_bytes", "max_expansion"),
    *("repair_run_ons", "mask_personal_data", "title", "punkt"),
    *("sample_reviews", "id"),
}
KEYS = {"name", "label", "helpText", "regexes", "isOptional", "defaultValue"}


@pytest.mark.parametrize("name", JOBS)
def test_the_metadata_follow_the_options(name):
    parameters = json.loads((DATAFLOW / f"{name}.json").read_text())["parameters"]
    job, config = JOBS[name]
    arguments = {n: one for n, one in signature(job).parameters.items() if n != "beam_options"}
    del arguments["config"]
    known = {*arguments, *config.model_fields} - LEFT_OUT
    assert {p["name"] for p in parameters} == known
    for parameter in parameters:
        assert set(parameter) <= KEYS
        if not (field := config.model_fields.get(parameter["name"])):
            assert "defaultValue" not in parameter
            continue
        default = [parameter["defaultValue"]] if "defaultValue" in parameter else []
        for text in default:
            assert parse_field(config, parameter["name"], text) == field.default
        kind = strip_none(field.annotation)
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        values = [*map(str, choices), *default]
        assert all(re.fullmatch(regex, value) for regex in parameter["regexes"] for value in values)
    required = {n for n, one in arguments.items() if one.default is Parameter.empty}
    assert required == {p["name"] for p in parameters if not p.get("isOptional")}
