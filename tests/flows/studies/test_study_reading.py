"""Study files: read once, with their mistakes named, and expanded."""

from contextlib import nullcontext

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.form import Parameters, fill_parameters
from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.studies.study_reading import load_study
from tests.flows.studies.loaded import load_content


def test_general_text_is_given_where_arms_train_on_it_and_only_there(tmp_path):
    arms = [
        {"name": "reviews", "pretraining": {"shards": "${shards}"}},
        {"name": "other", "pretraining": {"shards": "${general_shards}"}},
    ]
    written = {"seeds": [0], "arms": arms, "tasks": [{"task": "polarity", "data": "${corpus}"}]}
    loaded = load_content(written, tmp_path, general_text=["g.txt"])
    assert loaded.wanted == {"corpus", "shards", "general_shards"}
    with pytest.raises(UserError, match=r"study\.general_text"):
        load_content(written, tmp_path)
    with pytest.raises(UserError, match=r"study\.general_text='g.txt'"):
        load_content({**written, "arms": arms[:1]}, tmp_path, general_text=["g.txt"])
    with pytest.raises(UserError, match="reviews"):
        load_content({**written, "tasks": [{"task": "polarity", "data": "${reviews}"}]}, tmp_path)


@pytest.mark.parametrize(
    ("name", "setting", "is_read"),
    [
        ("objective", "pretraining.steps=60", False),
        ("objective", "pretraining.seed=3", False),
        ("losses", "pretraining.batch=8", True),
    ],
)
def test_a_setting_that_no_stage_reads_is_refused(name, setting, is_read, tmp_path):
    field = setting.partition("=")[0]
    with nullcontext() if is_read else pytest.raises(UserError, match=field):
        general = ["text.txt"] if name == "objective" else []
        choice = StudyChoice(file=name, general_text=general)
        load_study(fill_parameters([setting], store=str(tmp_path)), choice)


def test_settings_of_the_command_replace_those_of_the_file(tmp_path, encoder):
    form = fill_parameters([f"pretraining.start_from={encoder}"], store=str(tmp_path))
    choice = StudyChoice(file="encoders", settings={"epochs": "1"})
    with pytest.raises(UserError, match=r"encoders.*epochs='1'"):  # every task says its own
        load_study(form, choice)
    settings = {"n_dev": "100", "pretraining_seeds": "0,1", "steps": "80"}
    study = load_study(form, choice.model_copy(update={"settings": settings})).study
    assert (study.settings["n_dev"], study.pretraining_seeds) == (100, [0, 1])
    assert study.arms[0].pretraining.set == {"steps": "80"}


def test_a_study_of_a_published_encoder_needs_one(tmp_path, encoder):
    choice = StudyChoice(file="encoders")
    with pytest.raises(UserError, match=r"pretraining\.start_from"):
        load_study(Parameters(store=str(tmp_path)), choice)
    given = fill_parameters([f"pretraining.start_from={encoder}"], recipe="sample")
    assert load_study(given, choice).wanted == {"corpus", "shards", "origin"}
