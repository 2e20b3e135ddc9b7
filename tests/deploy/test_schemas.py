"""The files for Kubernetes and Compose are what the schemas of both allow; copies lie here."""

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError

ROOT = Path(__file__).parents[2]
SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = json.loads((SCHEMAS / "kubernetes.json").read_text())
COMPOSE = Draft202012Validator(json.loads((SCHEMAS / "compose.json").read_text()))
MANIFESTS = ["kubernetes/workers.yaml", "kubernetes/servers.yaml", "flink/kubernetes.yaml"]
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


def list_variables(container):
    """Return the variables of a container by name: a value, or None where a secret has it."""
    return {each["name"]: each.get("value") for each in container.get("env", [])}


def test_the_servers_on_kubernetes_are_those_of_compose():
    """Each service with its command and variables, a password by a secret's key of its name."""
    [base] = read_documents("kubernetes/kustomization.yaml")
    found = [one for name in base["resources"] for one in read_documents(f"kubernetes/{name}")]
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in found
        if one["kind"] == "Deployment"
    }
    [compose] = read_documents("compose.yaml")
    services = compose["services"]
    assert pods.keys() == services.keys() - {"deployments", "endpoint"}
    for name, pod in pods.items():
        [container] = pod["containers"]
        own = services[name]
        if name != "database":
            command = [*own["entrypoint"], *own.get("command", [])]
            assert sorted(container["command"]) == sorted(command)
        if not container.get("envFrom"):
            set_here = list_variables(container).keys() - {"POSTGRES_PASSWORD", "PGDATA"}
            assert set_here == own["environment"].keys() - {"POSTGRES_PASSWORD"}
    [files] = [one["data"] for one in found if one["kind"] == "ConfigMap"]
    for name, text in files.items():
        assert text == (ROOT / "deploy" / name).read_text()
    steps = (ROOT / "deploy" / "kubernetes" / "kustomization.yaml").read_text()
    for pod in pods.values():
        for each in pod["containers"][0].get("env", []):
            if secret := each.get("valueFrom", {}).get("secretKeyRef"):
                [kept] = re.findall(r"grep -E '(.*)' \.env > servers\.env", steps)
                assert re.match(kept, f"{secret['key']}=x")


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
