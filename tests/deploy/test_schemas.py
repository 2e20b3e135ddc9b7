"""The files for Kubernetes and Compose are what the schemas of both allow; copies lie here."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

ROOT = Path(__file__).parents[2]
SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = json.loads((SCHEMAS / "kubernetes.json").read_text())
COMPOSE = Draft202012Validator(json.loads((SCHEMAS / "compose.json").read_text()))
MANIFESTS = ["kubernetes/workers.yaml", "flink/kubernetes.yaml"]
COMPOSE_FILES = ["compose.yaml", "flink/compose.yaml"]


def read_documents(name):
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))


def check_manifest(document):
    schema = KUBERNETES | {"$ref": f"#/$defs/{document['kind']}"}
    Draft202012Validator(schema).validate(document)


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_are_valid(name):
    for document in read_documents(name):
        check_manifest(document)


@pytest.mark.parametrize("name", COMPOSE_FILES)
def test_compose_files_are_valid(name):
    for document in read_documents(name):
        COMPOSE.validate(document)


def test_a_slip_is_noticed():
    *_, deployment = read_documents("kubernetes/workers.yaml")
    deployment["spec"]["template"]["spec"]["containers"][0]["comand"] = ["true"]
    with pytest.raises(ValidationError, match="comand"):
        check_manifest(deployment)
    [compose] = read_documents("compose.yaml")
    compose["services"]["prefect"]["port"] = []
    with pytest.raises(ValidationError, match="port"):
        COMPOSE.validate(compose)
