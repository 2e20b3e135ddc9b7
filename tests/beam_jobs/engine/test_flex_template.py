"""The files of the Flex Templates say what the jobs' options say."""

import json
import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from amazon_electra.beam_jobs.config import CorpusOptions, ShardsOptions
from amazon_electra.beam_jobs.core.settings import parse_field, strip_none

ROOT = Path(__file__).parents[3]
DATAFLOW = ROOT / "deploy" / "dataflow"
OPTIONS = {"corpus_job": CorpusOptions, "shards_job": ShardsOptions}
LEFT_OUT = {  # a command can set them; who starts a template seldom has to
    *(
        "format",
        "records",
        "sheet",
        "encoding",
        "max_record_bytes",
        "max_expansion",
        "keep_raw_rejects",
    ),
    *("repair_run_ons", "mask_personal_data", "title", "punkt", "punkt_sample_bytes"),
    *("general_text", "sample_reviews", "id"),
}
KEYS = {"name", "label", "helpText", "regexes", "isOptional", "defaultValue"}


@pytest.mark.parametrize("job", OPTIONS)
def test_the_metadata_follow_the_options(job):
    parameters = json.loads((DATAFLOW / f"{job}.json").read_text())["parameters"]
    fields = OPTIONS[job].model_fields
    of_text = {"withhold", "withhold_corpus"} if job == "shards_job" else set()  # --general-text
    assert {p["name"] for p in parameters} == set(fields) - LEFT_OUT - of_text
    for parameter in parameters:
        assert set(parameter) <= KEYS
        field = fields[parameter["name"]]
        default = [parameter["defaultValue"]] if "defaultValue" in parameter else []
        for text in default:
            assert parse_field(OPTIONS[job], parameter["name"], text) == field.default
        kind = strip_none(field.annotation)
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        values = [*map(str, choices), *default]
        assert all(re.fullmatch(regex, value) for regex in parameter["regexes"] for value in values)
    required = {name for name, field in fields.items() if field.is_required()}
    required |= {"corpus"} & set(fields)
    assert required == {p["name"] for p in parameters if not p.get("isOptional")}
