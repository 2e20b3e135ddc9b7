"""deploy/: every setting, command and file that it names is one that the code and the installed packages know."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from flows import deployments

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
WORKERS = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "workers.yaml").read_text()))
SET_BY_IMAGE = {"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB"}


def environment_names():
    """Every variable that a shipped file sets for a process of ours."""
    for service in SERVICES.values():
        yield from service.get("environment", {})
    for line in (DEPLOY / "env.example").read_text().splitlines():
        if found := re.match(r"(?:# )?([A-Z][A-Z0-9_]+)=", line):
            yield found[1]
    yield from re.findall(r"\b([A-Z][A-Z0-9_]+)=", (DEPLOY / "Dockerfile").read_text())


def known_names():
    from mlflow import cli, environment_variables
    from prefect.settings import Settings
    from prefect.settings.legacy import _get_settings_fields

    prefect = set(_get_settings_fields(Settings))
    mlflow = {name for name in dir(environment_variables) if name.startswith("MLFLOW_")}
    mlflow |= {name for option in cli.server.params for name in [option.envvar] if isinstance(name, str)}
    code = "".join(path.read_text() for folder in ("flows", "model") for path in (ROOT / folder).rglob("*.py"))
    ours = set(re.findall(r"AMAZON_ELECTRA_[A-Z_]+", code))
    return prefect | mlflow | ours | SET_BY_IMAGE | {"DO_NOT_TRACK", "HF_HUB_OFFLINE"}


def test_every_variable_is_one_that_somebody_reads():
    assert set(environment_names()) - known_names() == set()


def test_the_commands_have_the_options_they_are_given():
    from click.testing import CliRunner
    from mlflow.cli import server

    mlflow = SERVICES["mlflow"]["entrypoint"]
    assert mlflow[:2] == ["mlflow", "server"]
    known = {word for option in server.params for word in option.opts}
    assert {word for word in mlflow if word.startswith("--")} <= known
    assert CliRunner().invoke(server, ["--help"]).exit_code == 0


@pytest.mark.parametrize("words", [["server", "start"], ["worker", "start"]])
def test_prefect_knows_the_options(words):
    done = subprocess.run([sys.executable, "-m", "prefect", *words, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [" ".join([*s.get("entrypoint", []), *s.get("command", [])]) for s in SERVICES.values()]
    lines += [" ".join(c["command"]) for d in WORKERS if d["kind"] == "Deployment" for c in containers(d)]
    given = {
        option
        for text in lines
        for line in text.splitlines()
        if f"prefect {' '.join(words)}" in line
        for option in re.findall(r"--[a-z-]+", line)
    }
    assert given
    assert {option for option in given if option not in done.stdout} == set()


def containers(document):
    return document["spec"]["template"]["spec"]["containers"]


def test_the_image_holds_what_its_processes_need():
    lines = (DEPLOY / "Dockerfile").read_text()
    for sources in re.findall(r"^COPY (.+) \S+$", lines, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split()), sources
    [extras] = re.findall(r"\.\[([a-z,]+)\]", lines)
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = ", project, re.MULTILINE) for extra in extras.split(","))
    images = {s["image"] for name, s in SERVICES.items() if name != "database"}
    images |= {c["image"] for d in WORKERS if d["kind"] == "Deployment" for c in containers(d)}
    assert images == {"amazon-electra"}


def test_what_the_deployments_service_runs_is_there():
    script = "\n".join(SERVICES["deployments"]["command"])
    for module in re.findall(r"python -m (\S+)", script):
        assert import_module(module)
    for path in re.findall(r"deploy/\S+", script):
        assert (ROOT / path).exists()
    assert set(re.findall(r"work-pool create (\S+)", script)) == {offer.pool for offer in deployments.OFFERS}


def test_every_secret_comes_from_the_environment_and_no_server_is_open():
    text = (DEPLOY / "compose.yaml").read_text()
    for name in re.findall(r"^\s+(\S*(?:PASSWORD|SECRET_KEY|AUTH_STRING)): (?!\$\{)", text, re.MULTILINE):
        pytest.fail(f"{name} is written into compose.yaml")
    example = (DEPLOY / "env.example").read_text()
    for name in re.findall(r"\$\{([A-Z_]+):\?", text):
        assert f"{name}=" in example, name
    assert SERVICES["prefect"]["environment"]["PREFECT_SERVER_API_AUTH_STRING"] == "${PREFECT_API_AUTH_STRING}"
    assert "basic-auth" in SERVICES["mlflow"]["entrypoint"]


def test_mounts_and_configs_are_declared():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"]
        for config in service.get("configs", []):
            assert config["source"] in COMPOSE["configs"]
        for other in service.get("depends_on", {}):
            assert other in SERVICES
