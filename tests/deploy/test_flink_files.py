"""deploy/flink: compose file, image, script and README say the same."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from amazon_electra.flows.configuration.form import Engine

ROOT = Path(__file__).parents[2]
FLINK = ROOT / "deploy" / "flink"
README = (FLINK / "README.md").read_text()
COMPOSE = yaml.safe_load((FLINK / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
PROPERTIES = COMPOSE["x-flink"]["environment"]["FLINK_PROPERTIES"]


def test_flink_is_configured_as_config_yaml_says():
    found = yaml.safe_load(PROPERTIES)
    for name, value in yaml.safe_load((FLINK / "config.yaml").read_text()).items():
        assert found.pop(name) == value
    assert all(".memory." in name for name in found)


def test_the_page_of_flink_takes_no_jars_and_answers_no_other_page():
    found = yaml.safe_load(PROPERTIES)
    assert found["web.submit.enable"] is False, "Flink's default is true"
    assert found["web.access-control-allow-origin"] != "*", "Flink's default"


def test_the_image_of_flink_can_read_the_properties():
    """Its entry point gives each line to a shell as `-DKEY=VALUE`, comments too."""
    for line in PROPERTIES.splitlines():
        assert re.fullmatch(r"[\w.-]+: [\w.:/ -]+", line), line


def test_every_task_manager_has_a_pool_of_workers_beside_it_where_jobs_look_for_it():
    address = Engine().worker_address
    pools = {n: s for n, s in SERVICES.items() if n.startswith("worker")}
    managers = {n: s for n, s in SERVICES.items() if n.startswith("taskmanager")}
    assert [s["network_mode"] for s in pools.values()] == [
        s["network_mode"] for s in managers.values()
    ]
    for command in [[*s["entrypoint"], *s["command"]] for s in pools.values()]:
        assert " ".join(command) in README
        assert address == f"localhost:{command[-1]}"


def start_job_server(folder, environment, *given):
    """Start the job server with a Java that does nothing; return how it ended."""
    java = folder / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    known = {"PATH": f"{folder}:/usr/bin:/bin", "JOB_SERVER_JARS": str(folder)}
    return subprocess.run(
        ["/bin/sh", FLINK / "job-server.sh", *given],
        env=known | environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PATH": "/nowhere"}, "error: no java on PATH: install Java 17"),
        ({"JOB_SERVER_JARS": "/nowhere"}, "error: no jars of Beam in /nowhere: mvn -f "),
        ({}, "error: give the REST address of the JobManager, HOST:8081"),
    ],
)
def test_the_job_server_says_in_one_line_what_it_lacks(tmp_path, environment, words):
    (tmp_path / "beam").mkdir()
    given = ["localhost:8081"] if environment else []
    done = start_job_server(tmp_path, environment, *given)
    assert done.returncode == 2
    assert done.stderr.startswith(words)
    assert len(done.stderr.splitlines()) == 1
