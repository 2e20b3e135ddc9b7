"""Studies: read with their mistakes named, expanded, run as processes, continued."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from model import study as entry
from model.command import UserMistake
from model.evaluation import latency, study_file, study_reading
from model.evaluation import study as studies
from model.evaluation.study_run import StudyRun
from tests.model.corpora import write_bert, write_corpus, write_electra

SETTINGS = {
    "learning_rates": [5e-3],
    "epochs": 6,
    "n_train": 150,
    "n_dev": 60,
    "max_length": 32,
    "layer_decay": 1.0,
    "pooling": "mean",
}


def content(**changes):
    return {
        "title": "T",
        "question": "Q?",
        "seeds": [0],
        "arms": [
            {"name": "one", "encoder": "e"},
            {"name": "two", "encoder": "random", "architecture": "arm:one"},
        ],
        "tasks": [{"task": "polarity", "data": "d"}],
    } | changes


def variables_of(name):
    return study_reading.variables_in(study_reading.found(name).read_text())


def test_cells_are_arms_by_tasks_by_seeds_and_the_nearest_setting_holds():
    study = study_reading.parse(
        content(
            seeds=[0, 1],
            settings={"epochs": 1, "batch": 8, "n_train": 10},
            tasks=[{"task": "polarity", "data": "d"}, {"task": "stars", "data": "d", "settings": {"batch": 16}}],
            arms=[{"name": "one", "encoder": "e", "settings": {"epochs": 2}}, {"name": "two", "encoder": "f"}],
        ),
        "here",
    )
    cells = list(studies.cells(study, lambda arm: {"n_train": 20}))
    assert len(cells) == 8
    of_stars = next(c for c in cells if (c.arm.name, c.task.task) == ("one", "stars"))
    assert of_stars.settings == {"epochs": 2, "batch": 16, "n_train": 20}


def test_a_grid_makes_arms_of_every_combination():
    study = study_reading.parse(content(grid={"focal_gamma": [1.0, 2.0], "loss": ["focal"]}), "here")
    assert [arm.name for arm in study_file.with_grid(study)] == [
        f"{arm}, focal_gamma={gamma}, loss=focal" for arm in ("one", "two") for gamma in (1.0, 2.0)
    ]


@pytest.mark.parametrize("name", study_reading.shipped())
def test_shipped_studies_are_right(name):
    variables = dict.fromkeys(variables_of(name), "100")
    study = study_reading.read(name, variables)
    assert list(studies.cells(study))
    with pytest.raises(UserMistake, match="give --var"):
        study_reading.read(name, {})


@pytest.mark.parametrize("name", study_reading.shipped())
def test_a_study_written_out_reads_back_the_same(name):
    study = study_reading.read(name, dict.fromkeys(variables_of(name), "100"))
    assert study_reading.from_text(study_reading.to_text(study), "written", {}) == study


def test_an_unknown_study_is_the_users_mistake():
    with pytest.raises(UserMistake, match="neither a file nor one of the shipped studies: domain_adaptation"):
        study_reading.read("nothing", {})


def test_a_fingerprint_follows_what_a_cell_depends_on():
    cell = next(studies.cells(study_reading.parse(content(), "here")))
    same = cell.fingerprint("tiny", {"data": "a", "encoder": "b"})
    assert same == cell.fingerprint("tiny", {"encoder": "b", "data": "a"})
    assert same != cell.fingerprint("tiny", {"data": "a", "encoder": "c"})
    assert same != cell.fingerprint("small", {"data": "a", "encoder": "b"})
    renamed = next(studies.cells(study_reading.parse(content(title="Other", question="?"), "here")))
    assert same == renamed.fingerprint("tiny", {"data": "a", "encoder": "b"})


def test_equal_flops_gives_the_cheaper_objective_more_steps(tmp_path):
    (tmp_path / "vocabulary").mkdir()
    (tmp_path / "vocabulary" / "vocab.txt").write_text("\n".join(map(str, range(4000))))
    (tmp_path / "shards.json").write_text(json.dumps({"max_length": 64}))
    pretraining = {"shards": str(tmp_path), "preset": "tiny", "set": {"steps": 1000}}
    mlm = pretraining | {"set": {"objective": "mlm"}, "same_flops_as": "electra"}
    arms = [{"name": "electra", "pretraining": pretraining}, {"name": "mlm", "pretraining": mlm}]
    run = StudyRun(study_reading.parse(content(arms=arms), "here"), tmp_path / "out")
    steps = run._steps_for_equal_flops(run.study.arm("mlm"))
    assert 1000 < steps < 2000


def test_equal_tokens_gives_shards_that_are_filled_less_more_steps(tmp_path):
    for name, tokens in (("full", 1200), ("half", 600)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shards.json").write_text(json.dumps({"sequences": 10, "tokens": tokens}))
    arms = [
        {"name": "a", "pretraining": {"shards": str(tmp_path / "full"), "set": {"steps": 1000}}},
        {"name": "b", "pretraining": {"shards": str(tmp_path / "half"), "same_tokens_as": "a"}},
    ]
    run = StudyRun(study_reading.parse(content(arms=arms), "here"), tmp_path / "out")
    assert run._pretraining_settings(run.study.arm("b")) == {"steps": 2000}
    arms[1]["pretraining"]["same_tokens_as"] = "c"
    with pytest.raises(UserMistake, match="no arm 'c'"):
        study_reading.parse(content(arms=arms), "here")


def test_a_fine_tuned_folder_may_teach_and_decides_what_a_cell_is(tmp_path):
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "task.json").write_text("{}")
    student = {"name": "student", "encoder": "half", "teacher": str(tmp_path / "teacher")}

    def cell():
        run = StudyRun(study_reading.parse(content(arms=[student]), "here"), tmp_path / "out")
        [only] = run.cells
        return run.folder(only), run._finetune_arguments(only, tmp_path / "model")

    before, arguments = cell()
    assert arguments[arguments.index("--teacher") + 1] == str(tmp_path / "teacher")
    (tmp_path / "teacher" / "task.json").write_text('{"task": "polarity"}')
    assert cell()[0] != before


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    write_corpus(folder / "corpus")
    write_electra(folder / "electra")
    write_bert(folder / "bert")
    arms = [
        {"name": "ELECTRA", "encoder": "${encoder}"},
        {"name": "half", "encoder": "half", "teacher": "arm:ELECTRA"},
    ]
    study = content(arms=arms, tasks=[{"task": "polarity", "data": "${corpus}"}], settings=SETTINGS, latency=True)
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder


def arguments(made, output):
    variables = ["--var", f"encoder={made / 'electra'}", "--var", f"corpus={made / 'corpus'}"]
    return [str(made / "study.yaml"), "--output", str(made / output), *variables]


def test_a_killed_study_leaves_no_process_goes_on_and_then_does_nothing_twice(made, monkeypatch):
    planned = entry.run([*arguments(made, "out"), "--dry_run"])
    assert (len(planned["cells"]), planned["complete"]) == (2, 0)
    command = [sys.executable, "-m", "model.study", *arguments(made, "out"), "--at_once", "1"]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((made / "out").glob("cells/*/log.txt")) and time.monotonic() < deadline:
        time.sleep(0.2)
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) != 0
    time.sleep(1)
    assert [p for p in _commands() if str(made / "out") in p] == []

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{made}/mlflow.db")
    result = entry.run(arguments(made, "out"))
    assert "half" in result["answer"].lower()
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    _check_mlflow(f"sqlite:///{made}/mlflow.db")
    assert list((made / "out" / "mlflow").rglob("report.html"))
    page = (made / "out" / "report.html").read_text()
    assert "latency" in page
    before = {path: path.stat().st_mtime_ns for path in (made / "out" / "cells").rglob("*.json")}
    again = entry.run(arguments(made, "out"))
    assert again["answer"] == result["answer"]
    assert {path: path.stat().st_mtime_ns for path in (made / "out" / "cells").rglob("*.json")} == before
    cost = json.loads(next((made / "out" / "cells").rglob("latency.json")).read_text())
    assert 0 < cost["batch_1"]["p50_ms"] <= cost["batch_1"]["p99_ms"]
    assert cost["reviews_per_second"] > 0


def _check_mlflow(uri):
    """One parent, a nested run for each cell with its curve and its test result."""
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(uri)
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    nested = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert len(runs) - len(nested) == 1
    assert {run.data.tags["arm"] for run in nested} == {"ELECTRA", "half"}
    for run in nested:
        assert {"dev_accuracy", "test_accuracy"} <= set(run.data.metrics)


def _commands():
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid():
            try:
                yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue


def test_a_failing_cell_is_told_with_its_log(made):
    study = yaml.safe_load((made / "study.yaml").read_text())
    (made / "empty").mkdir()
    (made / "empty" / "config.json").write_text("{}")
    study["arms"] = [{"name": "broken", "encoder": str(made / "empty")}]
    (made / "broken.yaml").write_text(yaml.safe_dump(study).replace("${corpus}", str(made / "corpus")))
    with pytest.raises(UserMistake, match="no tokenizer there"):
        entry.run([str(made / "broken.yaml"), "--output", str(made / "broken")])


def test_latency_counts_the_weights(made):
    folder = next((made / "out" / "cells").glob("*/model"))
    result = latency.measure(folder, "polarity", made / "corpus", threads=1, device="cpu")
    assert result["bytes"] == pytest.approx(4 * result["parameters"], rel=0.1)


def test_the_table_of_studies_names_their_variables():
    lines = (study_reading.SHIPPED / "README.md").read_text().splitlines()
    table = {cells[1].strip(): cells[3].strip() for cells in (line.split("|") for line in lines) if len(cells) == 5}
    for name in study_reading.shipped():
        assert sorted(table[name].split(", ")) == variables_of(name)
