"""What the stages of a study are made of, in which order they are made, and that each is a task of
its own in Prefect; the jobs themselves are noted, not run.
"""

import itertools
import json
from pathlib import Path

import pytest
import torch

from beam_jobs.job.errors import UserError
from flows.configuration.comparison import Finetuning
from flows.configuration.settings import fill_parameters
from flows.configuration.study_file import StudyChoice
from flows.domain_adaptation import graph
from flows.runner import stage_runner
from flows.runner.prefect_tasks import PrefectStageMaker
from flows.runner.processes import FinishedJob
from flows.runner.stage_runner import Plan, StageRunner
from flows.runner.store import Stage, Store
from flows.stages.pretraining import PretrainingRequest, build_training_stage
from flows.studies.pretraining_budget import count_equal_flops, count_equal_tokens
from flows.studies.study_reading import load_study
from flows.studies.study_report import describe_arm
from flows.studies.study_stages import StudyStages
from flows.study import build_study_graph
from model.tracking.mlflow_run import Tracking
from tests.flows.studies.loaded import build_stages, load_content
from tests.model.corpora import write_corpus, write_electra
from tests.model.synthetic_shards import write_shards

SPACE = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}, "batch": [8, 16]}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study_stages")
    torch.manual_seed(0)
    write_corpus(folder / "corpus", reviews=40)
    write_electra(folder / "electra")
    write_electra(folder / "other", layers=1)
    return folder


def content_of(made, arms=(), **changes):
    return {
        "title": "T",
        "question": "Q?",
        "seeds": [0],
        "arms": list(arms) or [{"name": "one", "encoder": str(made / "electra")}],
        "tasks": [{"task": "polarity", "data": str(made / "corpus")}],
    } | changes


def chain_of_teachers(made):
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

    def run(module, arguments, log, environment, follow, name):
        jobs.append((module, list(arguments)))
        output = Path(option(arguments, "--output"))
        output.mkdir(parents=True, exist_ok=True)
        (output / "metrics.jsonl").write_text(
            "".join(f'{{"step": {i}, "time": {i}, "loss": {1 / i}}}\n' for i in (1, 2))
        )
        result = {}
        if "search" in module:
            (output / "best.json").write_text(json.dumps({"settings": {"batch": next(numbers)}}))
        elif "epochs=7" in arguments:
            raise UserError("every learning rate diverged")
        elif "--evaluation" in arguments:
            evaluation = Path(option(arguments, "--evaluation"))
            evaluation.mkdir(parents=True, exist_ok=True)
            result = {"metrics": {"accuracy": {"value": 0.75}}, "split": "test"}
            (evaluation / "metrics.json").write_text(json.dumps(result))
        return FinishedJob({}, 0.1, 0.1, 1.0)

    monkeypatch.setattr(stage_runner, "run_job", run)
    return jobs


@pytest.fixture
def make_chains(call_in_flow):
    """Makes searches and cells in a flow; returns the states of its task runs by their names."""

    def run(stages, tracking=None, is_shared=False):
        runner = StageRunner(stages.store, [], tracking or Tracking("sqlite:///"))
        chains = stages.list_chains(is_shared)
        failure, runs = call_in_flow(lambda: PrefectStageMaker(runner).make_side_by_side(chains, 2))
        return failure, {r.name: r.state.name for r in runs}

    return run


def test_every_search_and_cell_is_a_task_of_its_own_after_its_teacher(made, noted, make_chains):
    stages = build_stages(content_of(made, chain_of_teachers(made)), made / "chain")
    assert [arm.name for arm in stages.ordered_arms] == [
        "alone",
        "teacher",
        "assistant",
        "student",
    ]
    _, runs = make_chains(stages)
    cells = {f"{arm} · polarity · seed 0" for arm in ("student", "assistant", "alone", "teacher")}
    assert runs == dict.fromkeys([*cells, "finetuning side by side"], "Completed")
    outputs = [option(arguments, "--output") for _, arguments in noted]
    taught = {option(a, "--output"): option(a, "--teacher") for _, a in noted if "--teacher" in a}
    assert len(taught) == 2
    assert all(
        outputs.index(teacher) < outputs.index(student) for student, teacher in taught.items()
    )
    assert {option(a, "--cache") for _, a in noted if "--teacher" in a} == {
        str(made / "chain" / "fine-tuning-cache")
    }
    noted.clear()
    make_chains(build_stages(content_of(made, chain_of_teachers(made)), made / "chain"))
    assert noted == [], "nothing is made twice"


def test_arms_that_wait_for_each_other_are_the_users_mistake(made):
    stages = build_stages(content_of(made, chain_of_teachers(made)), made / "circle")
    teacher = stages.arms["teacher"].model_copy(update={"teacher": "arm:student"})
    stages.arms["teacher"] = teacher
    with pytest.raises(
        UserError, match="arms student, assistant, teacher: each waits for a teacher"
    ):
        _ = stages.ordered_arms


def test_a_cell_that_fails_leaves_the_others_and_its_students_are_not_tried(
    made, noted, make_chains
):
    arms = chain_of_teachers(made)
    arms[3]["settings"] = {"epochs": 7}
    stages = build_stages(content_of(made, arms), made / "failing")
    failure, runs = make_chains(stages)
    assert isinstance(failure, UserError)
    assert str(failure).startswith(
        "3 of 4 failed; the first: teacher · polarity · seed 0: every learning rate diverged"
    )
    assert len(noted) == 2
    assert runs["alone · polarity · seed 0"] == "Completed"
    assert runs["student · polarity · seed 0"] == "NotReady"
    complete = [cell for cell in stages.cells if stages.store.manifest(cell.evaluated)]
    assert [cell.arm.name for cell in complete] == ["alone"]


def test_every_arm_is_searched_by_itself_and_students_after_their_teachers(
    made, noted, make_chains
):
    search = {"trials": 3, "space": SPACE}
    stages = build_stages(content_of(made, chain_of_teachers(made), search=search), made / "search")
    make_chains(stages)
    modules = [module.rpartition(".")[2] for module, _ in noted]
    assert sorted(modules) == ["finetune"] * 4 + ["search"] * 4
    batches = {
        cell.arm.name: [word for word in arguments if word.startswith("batch=")]
        for cell in stages.cells
        for _, arguments in noted
        if option(arguments, "--output") == str(stages.store.folder(cell.finetuned))
    }
    found = {
        name: json.loads((stages.store.folder(stage) / "best.json").read_text())["settings"]
        for name, stage in stages.searches.items()
    }
    assert batches == {name: [f"batch={best['batch']}"] for name, best in found.items()}
    assert len({tuple(words) for words in batches.values()}) == 4
    order = [option(arguments, "--output") for _, arguments in noted]
    finetuned = {c.arm.name: str(stages.store.folder(c.finetuned)) for c in stages.cells}
    searched = {name: str(stages.store.folder(stage)) for name, stage in stages.searches.items()}
    assert order.index(finetuned["teacher"]) < order.index(searched["assistant"])


def test_only_students_are_searched_for_what_a_teacher_gives(made):
    search = {"trials": 3, "space": {"soft_weight": {"low": 0.1, "high": 0.9}}}
    stages = build_stages(content_of(made, chain_of_teachers(made), search=search), made / "soft")
    assert set(stages.searches) == {"assistant", "student"}


def test_studies_that_share_cells_have_each_a_nested_run_of_them(made, noted, make_chains):
    """Under its own parent, with curve and result; one that was begun is finished."""
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{made}/mlflow.db"
    stages = build_stages(content_of(made, chain_of_teachers(made)), made / "kept")
    client = mlflow.MlflowClient(uri)

    def go(title):
        tracking = Tracking(uri)
        folder = made / f"run {title}"
        folder.mkdir(exist_ok=True)
        tracking.start(title, {}, {}, folder=folder)
        make_chains(stages, tracking, is_shared=True)
        tracking.finish()

    def nested(title):
        every = client.search_runs([e.experiment_id for e in client.search_experiments()])
        (parent,) = (run.info.run_id for run in every if run.info.run_name == title)
        return [run for run in every if run.data.tags.get("mlflow.parentRunId") == parent]

    for title in ("first", "other", "other"):
        go(title)
    client.update_run(nested("other")[0].info.run_id, "RUNNING")
    go("other")
    assert len(noted) == 4
    first, other = (
        [_read_run(client, run) for run in nested(title)] for title in ("first", "other")
    )
    assert len(first) == 4
    assert sorted(first, key=str) == sorted(other, key=str)


def _read_run(client, run):
    assert run.info.status == "FINISHED"
    curve = [
        (point.step, point.value) for point in client.get_metric_history(run.info.run_id, "loss")
    ]
    assert curve == [(1, 1.0), (2, 0.5)]
    assert run.data.metrics["test.accuracy"] == 0.75
    tags = {name: value for name, value in run.data.tags.items() if not name.startswith("mlflow.")}
    tags.pop("fingerprint", None)
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

    def fingerprint(change):
        stages = build_stages(content_of(made, **{"search": search} | change), made / "prints")
        return stages.searches["one"].fingerprint

    fingerprints = [fingerprint(change) for change in changed]
    assert len(set(fingerprints)) == len(changed)
    weights = made / "other" / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"\0")
    assert fingerprint(changed[7]) != fingerprints[7]


def test_cells_are_arms_by_tasks_by_seeds_and_the_nearest_setting_holds(made):
    data = str(made / "corpus")
    stages = build_stages(
        content_of(
            made,
            seeds=[0, 1],
            settings={"epochs": 1, "batch": 8, "n_train": 10},
            tasks=[
                {"task": "polarity", "data": data},
                {"task": "stars", "data": data, "settings": {"batch": 16}},
            ],
            arms=[
                {"name": "one", "encoder": str(made / "electra"), "settings": {"epochs": 2}},
                {"name": "two", "encoder": str(made / "other")},
            ],
        ),
        made / "cells",
    )
    assert len(stages.cells) == 8
    stars = next(c for c in stages.cells if (c.arm.name, c.task.task) == ("one", "stars"))
    settings = stars.finetuned.parameters["settings"]
    assert (settings["epochs"], settings["batch"], settings["n_train"]) == (2.0, 16, 10)


def test_a_cell_is_what_it_is_made_of_and_not_what_it_is_called(made):
    def fingerprints(**changes):
        stages = build_stages(content_of(made, **changes), made / "names")
        return [cell.finetuned.fingerprint for cell in stages.cells]

    electra = {"encoder": str(made / "electra")}
    before = fingerprints()
    assert fingerprints(title="Other", question="?", arms=[{"name": "x", **electra}]) == before
    assert fingerprints(preset="small") != before
    assert fingerprints(arms=[{"name": "one", "encoder": str(made / "other")}]) != before


def test_a_study_finds_what_a_run_on_the_same_dump_has_made(tmp_path):
    """Its random arm too, which depends on the shape of the encoder alone."""
    store = Store(tmp_path)
    parameters = fill_parameters(
        ["finetuning.seeds=0", "pretraining.steps=9"],
        dump={"paths": ["sample:50"]},
        store=str(tmp_path),
    )
    run = Plan(store)
    graph(parameters, run)
    shards = {"shards": "${shards}", "set": {"steps": "${steps}"}}
    written = {
        "preset": "tiny",
        "seeds": [0],
        "arms": [
            {"name": "pre-trained", "pretraining": shards},
            {"name": "untrained", "encoder": "random", "architecture": "arm:pre-trained"},
            {"name": "given", "encoder": "${encoder}"},
            {"name": "of its shape", "encoder": "random", "architecture": "${encoder}"},
        ],
        "tasks": [{"task": task, "data": "${corpus}"} for task in ("polarity", "stars")],
    }
    study = Plan(store)
    default = Finetuning()
    parameters = parameters.model_copy(update={"finetuning": default})
    loaded = load_study(parameters, StudyChoice(own=written))
    build_study_graph(loaded)(parameters, study)
    made_by_run = {stage.fingerprint for stage, _ in run.stages if stage.name != "report"}
    made_by_study = {stage.fingerprint for stage, _ in study.stages if stage.name != "study"}
    assert made_by_study == made_by_run


def test_a_random_encoder_begins_as_its_pre_training_or_with_a_deviation_of_its_own(made, tmp_path):
    shards = write_shards(tmp_path / "shards", size=4000, length=64)
    own = {"shards": str(shards), "set": {"initializer_range": 0.05}}
    random = {"encoder": "random", "architecture": "arm:one"}
    arms = [
        {"name": "one", "pretraining": own},
        {"name": "random", **random},
        {"name": "random, deviation 0.02", **random, "initializer_range": 0.02},
    ]
    stages = build_stages(content_of(made, arms, seeds=[0]), tmp_path / "store")
    _, begun, drawn = (cell.finetuned for cell in stages.cells)
    assert begun.parameters["start"]["initializer_range"] == 0.05
    assert drawn.parameters["initializer_range"] == 0.02
    assert "start" not in drawn.parameters
    assert "--initializer-range" not in begun.arguments(stages.store, tmp_path / "begun")
    assert (
        option(drawn.arguments(stages.store, tmp_path / "drawn"), "--initializer-range") == "0.02"
    )
    config = json.loads((tmp_path / "begun" / "architecture" / "config.json").read_text())
    assert config["pretraining_start"]["initializer_range"] == 0.05


def test_every_arm_is_pre_trained_once_with_each_seed_and_random_ones_with_none(made, tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "shards.json").write_text("{}")
    arms = [
        {"name": "trained", "pretraining": {"shards": str(tmp_path / "shards")}},
        {"name": "student", "encoder": "half", "teacher": "arm:trained"},
        {"name": "random", "encoder": "random", "architecture": "arm:trained"},
    ]
    stages = build_stages(
        content_of(made, arms, seeds=[0, 1], pretraining_seeds=[3, 4]), tmp_path / "store"
    )
    assert [(arm.name, seed) for arm, seed, _ in stages.pretrainings] == [
        ("trained", 3),
        ("trained", 4),
    ]
    cells = [(c.arm.name, c.pretraining_seed, c.seed) for c in stages.cells]
    pre = [(arm, p, s) for arm in ("trained", "student") for p in (3, 4) for s in (0, 1)]
    assert cells == [*pre, ("random", None, 0), ("random", None, 1)]
    assert len({c.finetuned.fingerprint for c in stages.cells}) == 10
    student = next(c for c in stages.cells if c.arm.name == "student" and c.pretraining_seed == 4)
    teacher = student.finetuned.inputs["teacher"]
    assert teacher.inputs["encoder"].parameters["seed"] == 4


def test_a_report_names_every_pre_training_of_an_arm(made, tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "shards.json").write_text("{}")
    arms = [{"name": "trained", "pretraining": {"shards": str(tmp_path / "shards")}}]
    stages = build_stages(content_of(made, arms, pretraining_seeds=[3, 4]), tmp_path / "store")
    for _, _, stage in stages.pretrainings:
        folder = stages.store.folder(stage)
        folder.mkdir(parents=True)
        numbers = dict.fromkeys(("tokens", "matrix_flops", "flops", "seconds"), 1)
        (folder / "result.json").write_text(json.dumps(numbers))
        stages.store.publish(stage, numbers)
    told = describe_arm(stages, stages.study.arms[0], stages.study, {})
    first, second = (stage.fingerprint for _, _, stage in stages.pretrainings)
    assert told["pretrainings"] == [
        {"seed": 3, "fingerprint": first},
        {"seed": 4, "fingerprint": second},
    ]


def _pretraining(shards, **settings):
    training = PretrainingRequest("tiny", settings, 0, "auto")
    external = Stage("external", 1, {"content": shards.name}, result={"path": str(shards)})
    return training, external


def test_equal_flops_gives_the_cheaper_objective_more_steps(tmp_path):
    shards = write_shards(tmp_path / "shards", size=4000, length=64)
    electra = build_training_stage(*_pretraining(shards), 1000)
    mlm = build_training_stage(*_pretraining(shards, objective="mlm"), 0)
    store = Store(tmp_path / "store")
    steps = count_equal_flops(store, mlm, electra, "cpu")
    assert steps == pytest.approx(1290, abs=30)  # by the published count it would be 1,640
    assert count_equal_flops(store, mlm, electra, "cuda") < steps  # attention weighs less there


def test_equal_tokens_gives_shards_that_are_filled_less_more_steps(tmp_path, made):
    for name, tokens in (("full", 1200), ("half", 600)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shards.json").write_text(
            json.dumps({"sequences": 10, "tokens": tokens})
        )
    arms = [
        {"name": "a", "pretraining": {"shards": str(tmp_path / "full"), "set": {"steps": 1000}}},
        {"name": "b", "pretraining": {"shards": str(tmp_path / "half"), "same_tokens_as": "a"}},
    ]
    stages = build_stages(content_of(made, arms), tmp_path / "store")
    (_, _, first), (_, _, second) = stages.pretrainings
    assert count_equal_tokens(stages.store, second, first) == 2000
    assert option(second.arguments(stages.store, tmp_path), "--steps") == "2000"
    arms[1]["pretraining"]["same_tokens_as"] = "c"
    with pytest.raises(UserError, match="no arm 'c'"):
        load_content(content_of(made, arms), tmp_path)


def test_a_fine_tuned_folder_may_teach_and_decides_what_a_cell_is(tmp_path, made):
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "task.json").write_text("{}")
    student = {"name": "student", "encoder": "half", "teacher": str(tmp_path / "teacher")}

    def cell():
        stages = build_stages(content_of(made, [student]), tmp_path / "store")
        [only] = stages.cells
        return only.finetuned.fingerprint, only.finetuned.arguments(stages.store, tmp_path)

    before, arguments = cell()
    assert option(arguments, "--teacher") == str(tmp_path / "teacher")
    (tmp_path / "teacher" / "task.json").write_text('{"task": "polarity"}')
    assert cell()[0] != before


@pytest.mark.parametrize(
    ("settings", "folder"),
    [({}, "discriminator"), ({"objective": "mlm"}, "encoder"), ({"batch": "8"}, "discriminator")],
)
def test_the_encoder_of_a_study_is_the_one_its_pre_training_leaves(
    settings, folder, made, tmp_path
):
    store = Store(tmp_path)
    training = PretrainingRequest("tiny", settings, 0, "auto")
    encoder = build_training_stage(training, Stage("shards", 0, {}), 0)
    written = content_of(made, [{"name": "one", "encoder": "${encoder}"}])
    stages = StudyStages(load_content(written, tmp_path), {"encoder": encoder}, store)
    words = stages.cells[0].finetuned.arguments(store, tmp_path / "made")
    assert option(words, "--encoder") == f"{store.folder(encoder)}/{folder}"
