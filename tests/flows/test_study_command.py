"""`amazon-electra study`: from a dump to the report, killed and continued; on data that are there already."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from beam_jobs.command import UserMistake
from flows import study_command
from flows.cli import attempt, parser
from flows.parameters import Parameters, StudyChoice
from flows.store import Known, Stage, Store
from model.json_file import write_json
from tests.model.corpora import write_corpus, write_electra

STUDY = {
    "title": "Small",
    "question": "Is it?",
    "seeds": [0],
    "arms": [
        {"name": "reviews", "pretraining": {"shards": "${shards}", "set": {"steps": "${steps}"}}},
        {"name": "other text", "pretraining": {"shards": "${general_shards}", "set": {"steps": "${steps}"}}},
        {"name": "random", "encoder": "random", "architecture": "arm:reviews"},
    ],
    "tasks": [
        {"task": "polarity", "data": "${corpus}"},
        {"task": "table:text=said,label=mood", "data": "${own}", "title": "own"},
    ],
    "settings": {"n_train": 60, "n_dev": 40, "n_test": 60, "epochs": 1, "learning_rates": [1e-3], "max_length": 32},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A study file, a task of one's own, general text; `own` occurs in the general text once."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "small.yaml").write_text(yaml.safe_dump(STUDY))
    rows = [f"the {i}th thing of all these many things was {'good' if i % 2 else 'bad'},{i % 2}" for i in range(300)]
    (folder / "own.csv").write_text("\n".join(["said,mood", *rows]))
    documents = [f"An encyclopaedia says of number {i} that it follows {i - 1}. It is a number." for i in range(400)]
    documents.append("the 7th thing of all these many things was good")
    (folder / "general.txt").write_text("\n\n".join(documents))
    return folder


def command(place, *more):
    words = ["study", str(place / "small.yaml"), "--dump", "sample:1200", "--general", str(place / "general.txt")]
    settings = ["--set", f"own={place / 'own.csv'}", "--set", "pretraining.steps=4", "--set", "shards.max_length=32"]
    return [*words, *settings, "--store", str(place / "store"), "--at-once", "1", *more]


@pytest.mark.timeout(3600)
def test_a_study_goes_from_the_dump_to_its_report_after_a_kill_and_then_does_nothing_twice(place):
    environment = {k: v for k, v in os.environ.items() if k not in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")}
    environment["OMP_NUM_THREADS"] = "1"
    run = [sys.executable, "-m", "flows.cli", *command(place)]
    child = subprocess.Popen(run, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 1200
    while not list((place / "store").glob("studies/cells/*/log.txt")) and time.monotonic() < deadline:
        assert child.poll() is None, "it ended before it came to a cell"
        time.sleep(0.2)
    child.send_signal(signal.SIGTERM)
    assert child.wait(300) != 0
    encoders = {path: path.stat().st_mtime_ns for path in (place / "store").glob("studies/encoders/*/result.json")}
    assert len(encoders) == 2

    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in encoders} == encoders
    [manifest] = [m for m in Store(place / "store").manifests() if m["stage"] == "study"]
    _check_report(place, place / "store" / "study" / manifest["fingerprint"])
    _check_mlflow(f"sqlite:///{place}/store/mlflow/mlflow.db")

    cells = {path: path.stat().st_mtime_ns for path in (place / "store").glob("studies/cells/*/evaluation/*")}
    more = subprocess.run([*run, "--set", "seeds=0,1"], env=environment, capture_output=True, text=True, timeout=1500)
    assert more.returncode == 0, more.stderr
    assert {path: path.stat().st_mtime_ns for path in cells} == cells
    assert len(list((place / "store").glob("studies/cells/*/evaluation/metrics.json"))) == 12


def _check_report(place, folder):
    """Lineage, counts, the command, and that the task's texts were withheld."""
    text = (folder / "report.md").read_text()
    store = Store(place / "store")
    for manifest in (m for m in store.manifests() if m["stage"] != "study"):
        assert manifest["fingerprint"] in text
    assert "amazon-electra study" in text
    assert "--general" in text
    [general] = [m for m in store.manifests() if m["title"] == "general-text shards"]
    assert general["result"]["empty_documents"] == 1
    assert "tested on in polarity, own reaches the pre-training of reviews, other text as a whole text" in text
    assert "**Warning:**" not in text
    assert (folder / "model" / "README.md").read_text().startswith("---\n")


def _check_mlflow(uri):
    """The study is a run with one nested for each pre-training and cell."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()], max_results=1000)
    [parent] = [run for run in runs if run.data.tags.get("kind") == "study"]
    nested = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(nested) == 2 + 6
    assert sum("test_accuracy" in run.data.metrics for run in nested) == 6
    assert "report.html" in {Path(file.path).name for file in client.list_artifacts(parent.info.run_id, "report")}


def test_a_dry_run_lists_stages_and_cells(place, capsys):
    assert attempt(parser().parse_args(command(place, "--dry-run"))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if " cell " in line] in ([], ["complete"] * 6)
    assert any("general-text shards" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["losses"], "losses needs encoder: give --dump PATH…, or --set encoder=FOLDER"),
        (["nothing"], "study.file: nothing: neither a file nor one of the shipped studies"),
        (["losses", "--dump", "sample:9", "--set", "review=x"], "no variable 'review'; it has encoder, reviews"),
        (["losses", "--set", "epochs"], "write --set NAME=VALUE"),
        (["losses", "--set", "encoder=/none"], "losses: give --set reviews=…"),
        (["losses", "--set", "encoder=/none", "--set", "reviews=/none"], "losses: tasks[0].data: /none: no such file"),
        (["losses", "--at-once", "0"], "--at-once 0: must be from 1 to 64"),
        (["domain_adaptation", "--dump", "sample:9", "--dry-run"], "give --general FILES"),
        (["losses", "--set", "encoder=/none", "--set", "reviews=/none", "--set", "seeds=x"], "expected whole numbers"),
    ],
)
def test_mistakes_are_told_in_one_line(words, message, tmp_path, capsys):
    assert attempt(parser().parse_args(["study", *words, "--store", str(tmp_path)])) == 2
    assert message in capsys.readouterr().err


def test_without_a_dump_a_study_takes_what_is_there(tmp_path, capsys):
    write_corpus(tmp_path / "corpus")
    write_electra(tmp_path / "electra" / "discriminator")
    (tmp_path / "electra" / "metrics.jsonl").touch()
    study = STUDY | {
        "arms": [
            {"name": "one", "encoder": "${encoder}"},
            {"name": "two", "encoder": "random", "architecture": "${encoder}"},
        ],
        "tasks": STUDY["tasks"][:1],
    }
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(study))
    words = [str(tmp_path / "two.yaml"), "--store", str(tmp_path / "store"), "--set", f"corpus={tmp_path / 'corpus'}"]
    arguments = parser().parse_args(["study", *words, "--set", f"encoder={tmp_path / 'electra' / 'discriminator'}"])
    study_command.run_study(arguments)
    assert "two" in capsys.readouterr().out
    [manifest] = Store(tmp_path / "store").manifests()
    write_json(tmp_path / "corpus" / "corpus.json", {"read": 1})
    assert not Store(tmp_path / "store").manifest(_stage(arguments)), "other data are another study"
    assert manifest["result"]["cells"] == 2


@pytest.mark.parametrize(
    ("settings", "folder"),
    [({}, "discriminator"), ({"objective": "mlm"}, "encoder"), ({"batch": "8"}, "discriminator")],
)
def test_the_encoder_of_a_study_is_the_one_its_pre_training_leaves(settings, folder, place, tmp_path):
    from flows.stages import pretraining, study

    study_of = STUDY | {"arms": [{"name": "one", "encoder": "${encoder}"}], "tasks": STUDY["tasks"][:1]}
    parameters = Parameters(store=str(tmp_path / "store"), pretraining={"settings": settings})
    store = Store(parameters.store)
    encoder = pretraining.stage(parameters, Stage("shards", 0, {}))
    sources = {"corpus": Known("corpus", 0, {}, known="c" * 16), "encoder": encoder}
    made = study.stage(parameters, StudyChoice(own=study_of), sources, store)
    (tmp_path / "made").mkdir()
    words = made.arguments(store, tmp_path / "made")
    assert f"encoder={store.folder(encoder)}/{folder}" in words


def test_a_study_of_the_form_is_the_one_of_the_file(place, tmp_path):
    from flows.stages import study

    parameters, variables = Parameters(store=str(tmp_path)), {"own": str(place / "own.csv")}
    own = StudyChoice(own=STUDY, variables=variables)
    filed = StudyChoice(file=str(place / "small.yaml"), variables=variables)
    assert study.read(parameters, own) == study.read(parameters, filed)
    assert study.wanted(own) == {"corpus", "shards", "general_shards"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arms": [{"name": "x"}]}, r"study\.own: arms\[0\]: give `encoder` or `pretraining`"),
        ({"tasks": []}, r"study\.own: a study needs at least one arm, one task"),
        ({"arms": []}, r"study\.own: a study needs at least one arm, one task"),
        ({"settings": {"epoch": 1}}, r"study\.own: settings\.epoch: no such setting"),
    ],
)
def test_a_mistake_in_the_form_is_told_before_anything_is_made(changes, words, tmp_path):
    from flows.stages import study

    choice = StudyChoice(own=STUDY | changes, variables={} if "tasks" in changes else {"own": "o.csv"})
    with pytest.raises(UserMistake, match=words):
        study.read(Parameters(store=str(tmp_path)), choice)


def _stage(arguments):
    from flows.stages import study

    return study.stage(*study_command.asked(arguments), {}, Store(arguments.store))
