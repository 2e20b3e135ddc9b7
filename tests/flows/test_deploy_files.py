"""deploy/: every setting, command and file that it names is one that the code and the installed
packages know.
"""

import os
import re
import subprocess
import tomllib
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from amazon_electra.beam_jobs.engine.staged_package import REQUIREMENTS
from amazon_electra.flows.servers.access import CLIENT

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
SET_BY_IMAGE = {"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB", "PYTHON_IMAGE"}
SET_BY_IMAGE |= {"TORCH", "TORCH_INDEX", "PIP_INDEX_URL", "UV_DEFAULT_INDEX"}
OF_LOGGING = {"PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER"}
"""Keys of Prefect's logging.yml."""

OF_BUCKETS = {
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"),
    *("AWS_DEFAULT_REGION", "GOOGLE_APPLICATION_CREDENTIALS"),
}


def environment_names():
    """Every variable that a shipped file sets for a process of ours."""
    for service in SERVICES.values():
        yield from service.get("environment", {})
    for line in (DEPLOY / "env.example").read_text().splitlines():
        if found := re.match(r"(?:# )?([A-Z][A-Z0-9_]+)=", line):
            yield found[1]
    yield from re.findall(r"\b([A-Z][A-Z0-9_]+)=", (DEPLOY / "Dockerfile").read_text())


def test_every_variable_is_one_that_somebody_reads():
    from mlflow import cli, environment_variables
    from prefect import settings as prefect

    options = {option.envvar for option in cli.server.params if isinstance(option.envvar, str)}
    code = [
        p.read_text() for f in ("flows", "model", "beam_jobs") for p in (ROOT / f).rglob("*.py")
    ]
    ours = set(re.findall(r"AMAZON_ELECTRA_[A-Z_]+", "".join(code)))
    known = options | ours | SET_BY_IMAGE | OF_BUCKETS | OF_LOGGING
    known |= {"DO_NOT_TRACK", "HF_HUB_OFFLINE"}
    unknown = set(environment_names()) - known
    modules = prefect, environment_variables
    assert {name for name in unknown if not any(hasattr(m, name) for m in modules)} == set()


def test_what_env_example_names_reaches_the_containers():
    named = re.findall(r"^([A-Z][A-Z0-9_]+)=", (DEPLOY / "env.example").read_text(), re.MULTILINE)
    text = (DEPLOY / "compose.yaml").read_text()
    of_image = {"DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "PREFECT_SERVER_ANALYTICS_ENABLED"}
    assert {name for name in named if name not in text} <= of_image
    assert "configs" not in COMPOSE, "its content needs a newer Compose than many have"
    for service, about in SERVICES.items():
        assert about.get("healthcheck"), service
    mounted = re.findall(r"\./([\w.-]+):", text)
    assert mounted
    assert all((DEPLOY / name).is_file() for name in mounted)


def test_every_worker_gives_signs_of_life_as_often_as_the_automation_expects():
    texts = {path: (DEPLOY / path).read_text() for path in ("compose.yaml", "env.example")}
    for path, text in texts.items():
        every = re.findall(r'PREFECT_FLOWS_HEARTBEAT_FREQUENCY(?:: |=)"?(\d+)', text)
        assert every, path
        assert set(every) == {CLIENT["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"]}, path


def test_every_secret_comes_from_the_environment_and_no_server_is_open():
    text = (DEPLOY / "compose.yaml").read_text()
    for name in re.findall(
        r"^\s+(\S*(?:PASSWORD|SECRET_KEY|AUTH_STRING)): (?!\$\{)", text, re.MULTILINE
    ):
        pytest.fail(f"{name} is written into compose.yaml")
    example = (DEPLOY / "env.example").read_text()
    for name in re.findall(r"\$\{([A-Z_]+):\?", text):
        assert f"{name}=" in example, name
    assert (
        SERVICES["prefect"]["environment"]["PREFECT_SERVER_API_AUTH_STRING"]
        == "${PREFECT_API_AUTH_STRING}"
    )
    assert "basic-auth" in SERVICES["mlflow"]["entrypoint"]
    assert SERVICES["mlflow"]["environment"]["MLFLOW_AUTH_CONFIG_PATH"]
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def read_pins(path):
    """The versions that a file pins, by the name the index knows a package under."""
    pins = re.findall(
        r"^([\w.-]+)(?:\[.*?\])?==([^\s;\\]+)", (ROOT / path).read_text(), re.MULTILINE
    )
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}


LOCKS = ("requirements.lock", "deploy/dataflow/requirements.txt")


@pytest.mark.parametrize("path", LOCKS)
def test_every_pin_has_its_hashes(path):
    text = (ROOT / path).read_text()
    blocks = [block for block in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if "==" in block]
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in text


def test_the_lock_pins_what_the_project_asks_for():
    """`make requirements` writes it after a change of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(word for name in extras for word in extras[name])]
    names = {re.match(r"[\w.-]+", word)[0].lower() for word in wanted}
    assert names - set(read_pins("requirements.lock")) == {"amazon-electra", "torch", "torch_xla"}


def test_dataflow_has_the_versions_of_the_lock():
    ours, theirs = map(read_pins, LOCKS)
    assert {name for name in theirs if ours.get(name) != theirs[name]} == set()
    assert set(map(str.lower, REQUIREMENTS)) <= set(theirs)


def test_the_image_has_the_pinned_torch():
    [pinned] = re.findall(r"^TORCH +:= (torch==.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert f"ARG TORCH={pinned}\n" in (DEPLOY / "Dockerfile").read_text()
    assert f" {pinned}\n" in (ROOT / "docs" / "performance.md").read_text()


def test_packages_with_terms_of_their_own_are_in_the_notice():
    told = (ROOT / "NOTICE").read_text()
    pinned = read_pins("requirements.lock")
    assert {"text-unidecode", "psycopg2-binary"} <= set(pinned)
    for name in pinned:
        with suppress(metadata.PackageNotFoundError):
            about = metadata.metadata(name)
            licence = " ".join(
                [about.get("License-Expression") or about.get("License") or ""]
                + [c for c in about.get_all("Classifier", []) if c.startswith("License")]
            )[:300]
            if re.search("GPL|Artistic|Mozilla|MPL", licence) and name != "hypothesis":
                assert name in told, f"{name}: {licence}"


def test_secrets_reach_neither_git_nor_an_image():
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"/.env", "/workers.env"} <= set(ignored)
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert sent[1] == "*"
    for dockerfile in ("Dockerfile", "dataflow/Dockerfile"):
        for sources in re.findall(
            r"^COPY (?!--)(.+) \S+$", (DEPLOY / dockerfile).read_text(), re.M
        ):
            assert {f"!{source.rstrip('/')}" for source in sources.split()} <= set(sent)


GCLOUD = """#!/bin/sh
# A slice in a file: made, pre-empted in its first training, made again, trained.
for last; do :; done
test $4 = ssh && echo "ssh $last" >> {folder}/calls || echo $4 >> {folder}/calls
case $4 in
describe) test -f {folder}/state && cat {folder}/state ;;
create) echo READY > {folder}/state ;;
delete) rm {folder}/state ;;
ssh)
    case $* in *setup*) exit 0 ;; esac
    test -f {folder}/again && exit 0
    touch {folder}/again; echo PREEMPTED > {folder}/state; exit 255 ;;
esac
"""


def test_a_slice_that_is_pre_empted_is_made_again_and_trains_on(tmp_path):
    fake = tmp_path / "gcloud"
    fake.write_text(GCLOUD.format(folder=tmp_path))
    fake.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SETUP": "setup",
        "SECONDS_BETWEEN": "0",
    }
    script = ROOT / "deploy" / "tpu" / "train_pod.sh"
    subprocess.run([script, "pod", "zone", "v3-32", "train"], env=environment, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    once = ["describe", "create", "ssh setup", "describe", "ssh train"]
    assert calls == [*once, "describe", "delete", *once]
