"""In which order a study runs what, and what its folders are named after; the jobs themselves are noted, not run."""

import itertools
import json

import pytest
import torch

from model.command import UserMistake
from model.evaluation import study_run
from model.evaluation.study_file import with_grid
from model.evaluation.study_jobs import JobFailed
from model.evaluation.study_reading import parse
from model.evaluation.study_run import StudyRun, waves
from model.evaluation.study_tracking import tracked
from tests.model.corpora import write_corpus, write_electra

SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "batch": [8, 16]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study_run")
    torch.manual_seed(0)
    write_corpus(folder / "corpus", reviews=40)
    write_electra(folder / "electra")
    write_electra(folder / "other", layers=1)
    return folder


def run_of(made, output, arms=(), **changes):
    content = {
        "title": "T",
        "question": "Q?",
        "seeds": [0],
        "arms": list(arms) or [{"name": "one", "encoder": str(made / "electra")}],
        "tasks": [{"task": "polarity", "data": str(made / "corpus")}],
    }
    return StudyRun(parse(content | changes, "here"), made / output)


def chain(made):
    """Written with the last student first."""
    electra = str(made / "electra")
    return [
        {"name": "student", "encoder": electra, "teacher": "arm:assistant"},
        {"name": "assistant", "encoder": electra, "teacher": "arm:teacher"},
        {"name": "alone", "encoder": electra, "settings": {"epochs": 1}},
        {"name": "teacher", "encoder": electra},
    ]


def option(arguments, name):
    return arguments[arguments.index(name) + 1]


@pytest.fixture
def noted(monkeypatch):
    """Jobs that leave at once what a real one would have left at its end."""
    jobs: list[tuple[str, list[str]]] = []
    numbers = itertools.count(1)

    def run(self, module, arguments, folder, threads, lock):
        jobs.append((module, list(arguments)))
        folder.mkdir(parents=True, exist_ok=True)
        if "search" in module:
            (folder / "best.json").write_text(json.dumps({"settings": {"batch": next(numbers)}}))
        elif "epochs=7" in arguments:
            raise UserMistake("every learning rate diverged")
        else:
            (folder / "evaluation").mkdir()
            (folder / "evaluation" / "metrics.json").write_text("{}")

    monkeypatch.setattr(study_run.Jobs, "run", run)
    return jobs


def test_a_chain_of_teachers_is_run_from_its_beginning(made, noted):
    run = run_of(made, "chain", chain(made))
    assert [[arm.name for arm in wave] for wave in waves(with_grid(run.study))] == [
        ["alone", "teacher"],
        ["assistant"],
        ["student"],
    ]
    run._finetune()
    outputs = [option(arguments, "--output") for _, arguments in noted]
    taught = [arguments for _, arguments in noted if "--teacher" in arguments]
    assert [outputs.index(option(arguments, "--teacher")) < i + 2 for i, arguments in enumerate(taught)] == [True, True]
    assert outputs[2] == option(taught[1], "--teacher")
    assert {option(arguments, "--teacher_outputs") for arguments in taught} == {str(made / "chain" / "teachers")}


def test_arms_that_wait_for_each_other_are_the_users_mistake(made):
    arms = with_grid(run_of(made, "circle", chain(made)).study)
    circle = [arm.model_copy(update={"teacher": "arm:student"}) if arm.name == "teacher" else arm for arm in arms]
    with pytest.raises(UserMistake, match="arms student, assistant, teacher: each waits for a teacher"):
        list(waves(circle))


def test_a_cell_that_fails_leaves_the_others_and_its_students_are_not_tried(made, noted):
    arms = chain(made)
    arms[3]["settings"] = {"epochs": 7}
    run = run_of(made, "failing", arms)
    with pytest.raises(
        (JobFailed, UserMistake), match="3 of 4 cells failed; the first: teacher · polarity · seed 0: eve"
    ):
        run._finetune()
    assert len(noted) == 2
    assert sum(run.complete(cell) for cell in run.cells) == 1


def test_every_arm_is_searched_by_itself_and_students_after_their_teachers(made, noted):
    search = {"trials": 3, "space": SPACE}
    run = run_of(made, "searched", chain(made), search=search)
    run._finetune()
    modules = [module.rpartition(".")[2] for module, _ in noted]
    assert modules == ["search"] * 2 + ["finetune"] * 2 + ["search", "finetune"] * 2
    batches = {cell.arm.name: cell.settings["batch"] for cell in run.cells}
    assert batches == {name: found["batch"] for name, found in run.searched.items()}
    assert len(set(batches.values())) == 4
    teacher = next(run.folder(cell) for cell in run.cells if cell.arm.name == "teacher")
    assert option(noted[4][1], "--teacher") == str(teacher / "model")
    noted.clear()
    run_of(made, "searched", chain(made), search=search)._finetune()
    assert noted == []


def test_only_students_are_searched_for_what_a_teacher_gives(made, noted):
    run = run_of(made, "soft", chain(made), search={"trials": 3, "space": {"soft_weight": {"low": 0.1, "high": 0.9}}})
    run._finetune()
    searched = [option(arguments, "--teacher") for module, arguments in noted if "search" in module]
    assert len(searched) == 2


@pytest.fixture
def logged(monkeypatch):
    """Jobs that leave their curve and result at once."""
    jobs: list[str] = []

    def run(self, module, arguments, folder, threads, lock):
        jobs.append(module)
        output = folder if module == "model.pretrain" else folder / "model"
        output.mkdir(parents=True, exist_ok=True)
        (output / "metrics.jsonl").write_text(
            "".join(f'{{"step": {i}, "time": {i}, "loss": {1 / i}}}\n' for i in (1, 2))
        )
        (output / "result.json").write_text("{}")
        (folder / "evaluation").mkdir()
        (folder / "evaluation" / "metrics.json").write_text('{"metrics": {"accuracy": {"value": 0.75}}}')

    monkeypatch.setattr(study_run.Jobs, "run", run)
    return jobs


def test_studies_that_share_cells_have_each_a_nested_run_of_them(made, logged, monkeypatch):
    """Under its own parent, with curve and result; the same study again adds none, and finishes what was begun."""
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{made}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    arms = [*chain(made), {"name": "trained", "pretraining": {"shards": str(made / "corpus")}}]
    client = mlflow.MlflowClient(uri)

    def go(title):
        run = run_of(made, title, arms, title=title)
        run.keep = made / "kept"
        run.output.mkdir(exist_ok=True)
        with tracked(title, {}, run.output) as run._tracker:
            run._pretrain()
            run._finetune()

    def nested(title):
        every = client.search_runs([e.experiment_id for e in client.search_experiments()])
        (parent,) = (run.info.run_id for run in every if run.info.run_name == title)
        return [run for run in every if run.data.tags.get("mlflow.parentRunId") == parent]

    for title in ("shared", "other", "shared"):
        go(title)
    client.update_run(nested("other")[0].info.run_id, "RUNNING")
    go("other")
    assert len(logged) == 6
    shared, other = ([_told(client, run) for run in nested(title)] for title in ("shared", "other"))
    assert len(shared) == 6
    assert sorted(shared, key=str) == sorted(other, key=str)


def _told(client, run):
    assert run.info.status == "FINISHED"
    curve = [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "loss")]
    assert curve == [(1, 1.0), (2, 0.5)]
    assert run.data.metrics.get("test_accuracy") == (None if "pre-training" in run.info.run_name else 0.75)
    tags = {name: value for name, value in run.data.tags.items() if not name.startswith("mlflow.")}
    return run.info.run_name, tags, run.data.params


def test_a_search_belongs_to_all_that_its_trials_depend_on(made):
    search = {"trials": 3, "space": SPACE}
    polarity = {"task": "polarity", "data": str(made / "corpus")}
    changed = [
        {},
        {"search": search | {"trials": 4}},
        {"search": {"trials": 3, "space": {"batch": [8]}}},
        {"settings": {"epochs": 2}},
        {"tasks": [polarity | {"settings": {"n_train": 20}}]},
        {"tasks": [polarity | {"task": "stars"}]},
        {"arms": [{"name": "one", "encoder": str(made / "electra"), "settings": {"clip": 2.0}}]},
        {"arms": [{"name": "one", "encoder": str(made / "other")}]},
        {"preset": "tiny"},
        {"seeds": [1]},
    ]
    runs = [run_of(made, "folders", **{"search": search} | change) for change in changed]
    folders = {run._search_folder(with_grid(run.study)[0]) for run in runs}
    assert len(folders) == len(changed)
    weights = made / "other" / "model.safetensors"
    before = runs[7]._search_folder(runs[7].study.arms[0])
    weights.write_bytes(weights.read_bytes() + b"\0")
    again = run_of(made, "folders", **{"search": search} | changed[7])
    assert again._search_folder(again.study.arms[0]) != before
