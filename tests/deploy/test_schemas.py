"""The files for Compose are what its schema allows; a copy lies here."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

ROOT = Path(__file__).parents[2]
SCHEMA = Path(__file__).parent / "schemas" / "compose.json"
COMPOSE = Draft202012Validator(json.loads(SCHEMA.read_text()))


def read(name):
    return yaml.safe_load((ROOT / "deploy" / name).read_text())


@pytest.mark.parametrize("name", ["compose.yaml", "flink/compose.yaml"])
def test_compose_files_are_valid(name):
    COMPOSE.validate(read(name))


def test_a_slip_is_noticed():
    compose = read("compose.yaml")
    compose["services"]["prefect"]["port"] = []
    with pytest.raises(ValidationError, match="port"):
        COMPOSE.validate(compose)
