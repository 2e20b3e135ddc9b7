"""What deploy/compose.yaml promises, in containers: one stack, one test after another."""

import json
import subprocess
import sys
import urllib.request
from base64 import b64encode

import pytest

from tests.containers.stack import serve_stack
from tests.hosts import crash
from tests.served import CLEAN, Servers, pointed_at

PARAMETERS = {
    "dump": {"paths": ["sample:3000"]},
    "pretraining": {"steps": 60, "settings": {"checkpoint_every": "20"}},
    "finetuning": {"seeds": [0], "tasks": ["polarity"]},
}
MODEL = "amazon-electra-polarity"
STORE = "/data/store"
TEXTS = ["Works as described, five stars.", "Broke after a day. Awful."]


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    logged_as_json = {"PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER": "json"}
    with serve_stack(tmp_path_factory.mktemp("containers"), **logged_as_json) as stack:
        yield stack


@pytest.fixture(scope="module")
def served(stack, tmp_path_factory):
    """Both servers as this machine reaches them: by their published ports."""
    folder = tmp_path_factory.mktemp("client")
    served = Servers(folder, "http://127.0.0.1:4200", "http://127.0.0.1:5000")
    name = "PREFECT_API_AUTH_STRING"
    with pointed_at(served, {name: stack.dotenv[name]}):
        yield served


def ask(url, body=None, **headers):
    """What a server answers."""
    content = None if body is None else json.dumps(body).encode()
    headers |= {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, content, headers)) as answer:
        return answer.read().decode()


def test_a_run_outlives_a_killed_worker(stack, served):
    first = served.start("domain-adaptation", **PARAMETERS)
    stack.crash("worker-accelerator", f"ls {STORE}/pretraining/*/checkpoints/step-*/state.json")
    look = f"ls {STORE}/pretraining/*/manifest.json 2>/dev/null || true"
    assert not stack("exec", "-T", "worker-cpu", "sh", "-c", look), "killed after the end"
    assert stack.count_restarts("worker-accelerator") == 1
    crash(served, first)
    served.wait(served.start("domain-adaptation", **PARAMETERS), "Completed")


def test_logs_are_json_by_one_variable(stack, served):
    for service in ("prefect", "worker-cpu", "worker-accelerator"):
        lines = stack("logs", "--no-log-prefix", service).splitlines()
        logged = [json.loads(line) for line in lines if line.startswith("{")]
        assert logged, service
        assert all(one["message"] and one["levelname"] for one in logged)


def test_the_champion_is_fetched_without_the_store(stack, served, tmp_path):
    from amazon_electra.beam_jobs.scoring.classifier import load_classifier

    names = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    access = {"MLFLOW_TRACKING_URI": served.mlflow} | {name: stack.dotenv[name] for name in names}
    words = ["mlflow", "artifacts", "download", "-u", f"models:/{MODEL}@champion", "-d", tmp_path]
    subprocess.run([sys.executable, "-m", *words], env=CLEAN | access, check=True)
    [config] = tmp_path.rglob("artifacts/*/config.json")
    found = load_classifier(str(config.parent), "fp32").compute_probabilities(TEXTS)
    assert found.sum(1) == pytest.approx(1)


def test_prefects_metrics_answer(stack, served):
    password = b64encode(stack.dotenv["PREFECT_API_AUTH_STRING"].encode()).decode()
    assert "# TYPE" in ask(f"{served.prefect}/api/metrics", Authorization=f"Basic {password}")


def test_what_people_set_survives_another_up(stack, served):
    from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolUpdate

    def read():
        with served.client() as client:
            names = ("domain-adaptation", "score", "watch-dumps")
            found = [client.read_deployment_by_name(f"{name}/{name}") for name in names]
            pools = [client.read_work_pool(name) for name in ("cpu", "accelerator")]
        schedules = [[(one.active, one.schedule) for one in each.schedules] for each in found]
        return (
            [(each.parameters, each.paused) for each in found],
            schedules,
            [(pool.is_paused, pool.concurrency_limit) for pool in pools],
        )

    with served.client() as client:
        adaptation = client.read_deployment_by_name("domain-adaptation/domain-adaptation")
        edited = adaptation.parameters | {"dump": {"paths": [f"{STORE}/inbox/mine.csv"]}}
        client.update_deployment(adaptation.id, DeploymentUpdate(parameters=edited))
        client.pause_deployment(client.read_deployment_by_name("score/score").id)
        client.update_work_pool("cpu", WorkPoolUpdate(concurrency_limit=5))
        client.update_work_pool("accelerator", WorkPoolUpdate(is_paused=True))
    before = read()
    stack("up", "-d", "--no-build")
    assert read() == before
    with served.client() as client:
        client.update_work_pool("accelerator", WorkPoolUpdate(is_paused=False))
