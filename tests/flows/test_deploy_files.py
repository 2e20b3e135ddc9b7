"""deploy/: every setting, command and file that it names is one that the code and the installed packages know."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from flows import deployments, servers

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
WORKERS = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "workers.yaml").read_text()))
SECRETS_OF_CLIENTS = {"PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"}
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


@pytest.mark.parametrize("words", ["prefect worker start", "python -m uvicorn"])
def test_the_programs_know_their_options(words):
    command = [sys.executable, "-m", *words.removeprefix("python -m ").split(), "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [" ".join([*s.get("entrypoint", []), *s.get("command", [])]) for s in SERVICES.values()]
    lines += [" ".join(c["command"]) for d in WORKERS if d["kind"] == "Deployment" for c in containers(d)]
    given = {
        option
        for text in lines
        for line in text.splitlines()
        if words in line
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
    for script in re.findall(r"deploy/\S+\.sh", (DEPLOY / "compose.yaml").read_text()):
        assert script in lines
    [extras] = re.findall(r"\.\[([a-z,]+)\]", lines)
    project = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = ", project, re.MULTILINE) for extra in extras.split(","))
    images = {s["image"] for name, s in SERVICES.items() if name != "database"}
    images |= {c["image"] for d in WORKERS if d["kind"] == "Deployment" for c in containers(d)}
    assert images == {"amazon-electra", "REGISTRY/amazon-electra"}


def test_the_scoring_image_has_what_was_tried_and_the_job_takes_it():
    lines = (DEPLOY / "dataflow" / "Dockerfile.scoring").read_text()
    constraints = (ROOT / "constraints.txt").read_text()
    (beam,) = re.findall(r"^apache-beam==(.+)$", constraints, re.MULTILINE)
    assert f"FROM apache/beam_python3.11_sdk:{beam}\n" in lines
    (torch,) = re.findall(r'"\$\((sed .+)\)"', lines)
    asked = subprocess.run(torch, shell=True, cwd=ROOT, capture_output=True, text=True).stdout
    assert re.fullmatch(r"torch==[\d.]+\+cpu\n", asked)
    (requirements,) = re.findall(r"\$\(python -c \"(.+)\"\)", lines)
    listed = subprocess.run([sys.executable, "-c", requirements], cwd=ROOT, capture_output=True, text=True).stdout
    assert {"tokenizers", "pyarrow"} <= set(listed.split())
    for sources in re.findall(r"^COPY (.+) \S+$", lines, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split()), sources


def test_workers_get_what_they_need_and_no_secret_of_a_server():
    text = (DEPLOY / "kubernetes" / "workers.yaml").read_text()
    (pattern,) = re.findall(r"grep -E '(.+)' \.env", text)
    example = (DEPLOY / "env.example").read_text().replace("# ", "")
    filled = [re.sub(r"=.*", "=x", line) for line in example.splitlines() if re.match(r"[A-Z_]+=", line)]
    given = {line.split("=")[0] for line in filled if re.search(pattern, line)}
    assert given == {"PREFECT_API_URL", "MLFLOW_TRACKING_URI", *SECRETS_OF_CLIENTS, "AMAZON_ELECTRA_MLFLOW_UI"}
    assert not re.search(pattern, "PREFECT_API_AUTH_STRING="), "an empty password is none"
    for document in WORKERS:
        if document["kind"] == "Deployment":
            assert document["spec"]["template"]["spec"]["securityContext"]["fsGroup"] == 1000
    assert "--uid 1000" in (DEPLOY / "Dockerfile").read_text()


def test_every_worker_gives_signs_of_life_as_often_as_the_automation_expects():
    texts = {path: (DEPLOY / path).read_text() for path in ("compose.yaml", "kubernetes/workers.yaml", "tpu/README.md")}
    texts["env.example"] = (DEPLOY / "env.example").read_text()
    for path, text in texts.items():
        every = re.findall(r'PREFECT_FLOWS_HEARTBEAT_FREQUENCY(?:: |=|, value: )"?(\d+)', text)
        assert every, path
        assert set(every) == {str(servers.HEARTBEAT_SECONDS)}, path


def test_what_the_containers_of_prefect_write_is_theirs_to_write():
    prefect = SERVICES["prefect"]
    lines = (DEPLOY / "Dockerfile").read_text()
    (home,) = [volume.split(":")[1] for volume in prefect["volumes"]]
    assert re.search(rf"mkdir -p .*{home} .*chown electra:electra .*{home}", lines)
    assert "PREFECT_SERVER_UI_STATIC_DIRECTORY=/home/electra/" in lines
    assert prefect["environment"]["AMAZON_ELECTRA_PREFECT_HOSTS"].split(",")[0] == "prefect"
    assert import_module("flows.prefect_application").HOSTS == "AMAZON_ELECTRA_PREFECT_HOSTS"
    assert all(service["init"] for name, service in SERVICES.items() if name != "database")


def test_what_the_deployments_service_runs_is_there():
    script = (ROOT / SERVICES["deployments"]["entrypoint"][1]).read_text()
    for module in re.findall(r"python -m (\S+)", script):
        assert import_module(module)
    for path in re.findall(r"deploy/[\w.]+", script):
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
