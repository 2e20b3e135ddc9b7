"""The files of the Flex Templates say what the jobs' options say."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from beam_jobs import corpus_options, shards_job

ROOT = Path(__file__).parents[2]
DATAFLOW = ROOT / "deploy" / "dataflow"
PARSE = {"corpus_job": corpus_options.parse, "shards_job": shards_job.parse}
KEYS = {"name", "label", "helpText", "regexes", "isOptional", "defaultValue"}


class Caught(Exception):
    """Carries a job's parser out of its parse function."""


def options_of(job: str) -> dict[str, argparse.Action]:
    def catch(parser, argv):
        raise Caught(parser)

    with patch.object(argparse.ArgumentParser, "parse_known_args", catch), pytest.raises(Caught) as caught:
        PARSE[job]([])
    return {action.dest: action for action in caught.value.args[0]._actions if action.dest != "help"}


@pytest.mark.parametrize("job", PARSE)
def test_the_metadata_follow_the_options(job):
    parameters = json.loads((DATAFLOW / f"{job}.json").read_text())["parameters"]
    options = options_of(job)
    for parameter in parameters:
        assert set(parameter) <= KEYS
        option = options[parameter["name"]]
        if "defaultValue" in parameter:
            assert type(option.default)(parameter["defaultValue"]) == option.default
        values = [str(c) for c in option.choices or []] + [parameter[k] for k in ["defaultValue"] if k in parameter]
        assert all(re.fullmatch(regex, value) for regex in parameter["regexes"] for value in values)
    required = {name for name, option in options.items() if option.required} | ({"corpus"} & set(options))
    assert required == {p["name"] for p in parameters if not p.get("isOptional")}


def test_the_image_has_the_beam_that_was_tried():
    constraints = (ROOT / "constraints.txt").read_text()
    (version,) = re.findall(r"^apache-beam==(.+)$", constraints, re.MULTILINE)
    assert f"apache/beam_python3.11_sdk:{version}\n" in (DATAFLOW / "Dockerfile").read_text()


@pytest.mark.parametrize("job", PARSE)
def test_the_launcher_starts_the_job(job):
    environment = {**os.environ, "JOB": job, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(DATAFLOW / "launch.py"), "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "--output" in done.stdout + done.stderr


def test_the_cost_in_the_readme_is_what_the_command_prints():
    readme = (DATAFLOW / "README.md").read_text()
    (command,) = re.findall(r"^    python (tests/bench/data_path_cost\.py .*)$", readme, re.MULTILINE)
    done = subprocess.run([sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in readme
