"""`amazon-electra study`: from a dump to the report, killed and continued; on data that are there
already.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from beam_jobs.core.files import write_json
from flows.cli import study_command
from flows.cli.main import attempt, build_parser
from flows.runner.stage_runner import Plan
from flows.store.store import Store
from flows.studies.study_reading import load_study
from flows.study import build_study_graph
from tests.model.corpora import write_corpus, write_electra

STUDY = {
    "title": "Small",
    "question": "Is it?",
    "seeds": [0],
    "arms": [
        {"name": "reviews", "pretraining": {"shards": "${shards}", "set": {"steps": "${steps}"}}},
        {
            "name": "other text",
            "pretraining": {"shards": "${general_shards}", "set": {"steps": "${steps}"}},
        },
        {"name": "random", "encoder": "random", "architecture": "arm:reviews"},
    ],
    "tasks": [
        {"task": "polarity", "data": "${corpus}"},
        {"task": "table:text=said,label=mood", "data": "${own}", "title": "own"},
    ],
    "settings": {
        "n_train": 60,
        "n_dev": 40,
        "n_test": 60,
        "epochs": 1,
        "learning_rates": [1e-3],
        "max_length": 32,
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A study file, a task of one's own, general text; `own` occurs in the general text once."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.yaml").write_text(yaml.safe_dump(STUDY))
    rows = [
        f"the {i}th thing of all these many things was {'good' if i % 2 else 'bad'},{i % 2}"
        for i in range(300)
    ]
    (folder / "own.csv").write_text("\n".join(["said,mood", *rows]))
    documents = [
        f"An encyclopaedia says of number {i} that it follows {i - 1}. It is a number."
        for i in range(400)
    ]
    documents.append("the 7th thing of all these many things was good")
    (folder / "general.txt").write_text("\n\n".join(documents))
    return folder


def command(place, *more):
    words = [
        "study",
        str(place / "small.yaml"),
        "--dump",
        "sample:1200",
        "--general",
        str(place / "general.txt"),
    ]
    settings = [
        "--set",
        f"own={place / 'own.csv'}",
        "--set",
        "pretraining.steps=4",
        "--set",
        "shards.max_length=32",
    ]
    return [*words, *settings, "--store", str(place / "store"), "--at-once", "1", *more]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_study_goes_from_the_dump_to_its_report_after_a_kill_and_then_does_nothing_twice(place):
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")
    }
    environment["OMP_NUM_THREADS"] = "1"
    run = [sys.executable, "-m", "flows.cli.main", *command(place)]
    child = subprocess.Popen(
        run, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not list((place / "store").glob("finetuning/*/log.txt")):
        assert child.poll() is None, "it ended before it came to a cell"
        time.sleep(0.2)
    child.send_signal(signal.SIGTERM)
    assert child.wait() != 0
    encoders = {
        path: path.stat().st_mtime_ns
        for path in (place / "store").glob("pretraining/*/manifest.json")
    }
    assert len(encoders) == 2

    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in encoders} == encoders
    [manifest] = [m for m in Store(place / "store").list_manifests() if m["stage"] == "study"]
    _check_report(place, place / "store" / "study" / manifest["fingerprint"])
    _check_mlflow(f"sqlite:///{place}/store/mlflow/mlflow.db")

    cells = {
        path: path.stat().st_mtime_ns
        for path in (place / "store").glob("evaluation/*/*")
        if path.name != "log.txt"
    }
    assert len(list((place / "store").glob("evaluation/*/metrics.json"))) == 6
    more = subprocess.run(
        [*run, "--set", "seeds=0,1"], env=environment, capture_output=True, text=True
    )
    assert more.returncode == 0, more.stderr
    assert {path: path.stat().st_mtime_ns for path in cells} == cells
    assert len(list((place / "store").glob("evaluation/*/metrics.json"))) == 12


def _check_report(place, folder):
    """Lineage, counts, the command, and that the task's texts were withheld."""
    text = (folder / "report.md").read_text()
    store = Store(place / "store")
    made_along = ("study", "evaluation")  # a cell is named by its fine-tuning
    for manifest in (m for m in store.list_manifests() if m["stage"] not in made_along):
        assert manifest["fingerprint"] in text
    assert "amazon-electra study" in text
    assert "--general" in text
    [general] = [m for m in store.list_manifests() if m["title"] == "general-text shards"]
    assert general["result"]["empty_documents"] == 1
    assert "No test text of polarity, own with three words or more is in the pre-" in text
    warnings = [line for line in text.splitlines() if "**Warning:**" in line]
    assert [line for line in warnings if "answers one class only" not in line] == []
    assert (folder / "model" / "README.md").read_text().startswith("---\n")


def _check_mlflow(uri):
    """The study is a run with one nested for each pre-training and cell."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    runs = client.search_runs(
        [e.experiment_id for e in client.search_experiments()], max_results=1000
    )
    whole = [
        run
        for run in runs
        if "mlflow.parentRunId" not in run.data.tags and run.info.status == "FINISHED"
    ]
    [parent] = whole
    nested = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(nested) == 2 + 6
    assert sum("test.accuracy" in run.data.metrics for run in nested) == 6
    assert {run.data.tags.get("arm") for run in nested} == {"reviews", "other text", "random", None}
    files = {Path(file.path).name for file in client.list_artifacts(parent.info.run_id)}
    assert "report.html" in files


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "study.file: nothing: neither a file nor one of the shipped studies"),
        (
            ["losses", "--dump", "sample:9", "--set", "review=x"],
            "no variable 'review'; it has corpus, encoder",
        ),
        (["losses", "--at-once", "0"], "--at-once 0: must be from 1 to 64"),
        (
            ["losses", "--dump", "sample:9", "--general", "README.md"],
            "--general README.md: no arm of the study losses pre-trains on general text",
        ),
        (
            ["losses", "--dump", "sample:9", "--set", "temperature=3"],
            "losses: cross-entropy on polarity: temperature has no effect without a teacher",
        ),
        (
            ["losses", "--set", "encoder=/none", "--set", "corpus=/none", "--set", "seeds=x"],
            "expected whole numbers",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(words, message, tmp_path, capsys):
    assert attempt(build_parser().parse_args(["study", *words, "--store", str(tmp_path)])) == 2
    assert message in capsys.readouterr().err


def test_without_a_dump_a_study_takes_what_is_there_and_other_data_are_another_study(tmp_path):
    write_corpus(tmp_path / "corpus")
    write_electra(tmp_path / "electra" / "discriminator")
    student = {"name": "half", "encoder": "half", "teacher": "arm:one"}
    arms = [{"name": "one", "encoder": "${encoder}"}, student]
    study = STUDY | {"arms": arms, "tasks": STUDY["tasks"][:1], "latency": True}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(study))
    words = ["study", str(tmp_path / "two.yaml"), "--store", str(tmp_path / "store")]
    words += ["--set", f"corpus={tmp_path / 'corpus'}"]
    words += ["--set", f"encoder={tmp_path / 'electra' / 'discriminator'}"]

    def list_stages():
        parameters, choice = study_command.read_choice(build_parser().parse_args(words))
        plan = Plan(Store(parameters.store))
        build_study_graph(load_study(parameters, choice))(parameters, plan)
        return [stage for stage, _ in plan.stages]

    stages = list_stages()
    wanted = {"finetuning": 2, "evaluation": 2, "latency": 2, "study": 1}
    assert Counter(stage.name for stage in stages) == wanted
    assert list_stages()[-1].fingerprint == stages[-1].fingerprint
    write_json(tmp_path / "corpus" / "corpus.json", {"read": 1})
    assert list_stages()[-1].fingerprint != stages[-1].fingerprint
