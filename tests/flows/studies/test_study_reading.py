"""Study files: read once, with their mistakes named, and expanded."""

from contextlib import nullcontext

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import Parameters, fill_parameters
from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.studies.study_reading import load_study
from tests.flows.studies.loaded import load_content, write_study_data


def test_without_general_text_its_arms_and_their_students_are_left_out(tmp_path):
    arms = [
        {"name": "reviews", "pretraining": {"shards": "${shards}"}},
        {"name": "other", "pretraining": {"shards": "${general_shards}"}},
        {"name": "student", "encoder": "half", "teacher": "arm:other"},
        {"name": "equal", "pretraining": {"shards": "${shards}", "same_flops_as": "other"}},
        {"name": "random", "encoder": "random", "architecture": "arm:reviews"},
    ]
    pairs = [["reviews", "other"], ["reviews", "random"]]
    tasks = [{"task": "polarity", "data": "${corpus}"}]
    written = {"seeds": [0], "arms": arms, "comparisons": pairs, "tasks": tasks}
    loaded = load_content(written, tmp_path)
    assert [arm.name for arm in loaded.study.arms] == ["reviews", "random"]
    assert loaded.study.comparisons == [("reviews", "random")]
    assert loaded.wanted == {"corpus", "shards"}
    assert set(loaded.left_out) == {"other", "student", "equal"}
    assert "give" not in loaded.left_out["student"]
    whole = load_content(written, tmp_path, general_text=["g.txt"])
    assert (len(whole.study.arms), whole.left_out) == (5, {})
    with pytest.raises(UserError, match=r"study.general_text"):
        load_content({"arms": arms[1:2], "tasks": tasks}, tmp_path)


@pytest.mark.parametrize(
    ("name", "setting", "is_read"),
    [
        ("where_it_pays", "pretraining.steps=60", False),
        ("domain_adaptation", "pretraining.seed=3", False),
        ("domain_adaptation", "pretraining.steps=60", True),
        ("losses", "pretraining.batch=8", True),
        ("where_it_pays", "engine.placement=pools", True),
    ],
)
def test_a_setting_that_no_stage_reads_is_refused(name, setting, is_read, tmp_path):
    field = setting.partition("=")[0]
    with nullcontext() if is_read else pytest.raises(UserError, match=field):
        load_study(fill_parameters([setting], store=str(tmp_path)), StudyChoice(file=name))


def test_a_setting_that_every_task_says_itself_changes_nothing_and_is_refused(tmp_path):
    choice = StudyChoice(file="where_it_pays", settings={"epochs": "1"})
    with pytest.raises(UserError, match=r"where_it_pays.*epochs='1'"):
        load_study(Parameters(store=str(tmp_path)), choice)
    changed = choice.model_copy(update={"settings": {"n_dev": "100", "pretraining_seeds": "0,1"}})
    study = load_study(Parameters(store=str(tmp_path)), changed).study
    assert (study.settings["n_dev"], study.pretraining_seeds) == (100, [0, 1])


def test_a_study_of_a_published_encoder_needs_one_and_tasks_only_where_their_data_is(
    tmp_path, encoder
):
    choice = StudyChoice(file="adapt_published", general_text=["some text.txt"])
    with pytest.raises(UserError, match=r"pretraining\.start_from"):
        load_study(Parameters(store=str(tmp_path)), choice)
    given = fill_parameters([f"pretraining.start_from={encoder}"], recipe="sample")
    loaded = load_study(given, choice)
    assert loaded.wanted == {"corpus", "shards", "general_shards", "origin"}
    assert loaded.left_out["task sst-2"] == "its data is not set (sst2=…)"
    assert {task.task for task in loaded.study.tasks} == {"polarity", "stars"}
    write_study_data(tmp_path)
    named = choice.model_copy(update={"variables": {"sst2": str(tmp_path / "sst2")}})
    assert "sst-2" in {task.task for task in load_study(given, named).study.tasks}
    wrong = choice.model_copy(update={"variables": {"origin": "org/mini"}})
    with pytest.raises(UserError, match=r"pretraining.start_from='org/mini'"):
        load_study(given, wrong)
