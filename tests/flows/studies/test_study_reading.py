"""Study files: read once, with their mistakes named, and expanded."""

from functools import partial

import pytest

from amazon_electra.beam_jobs.core.errors import UserError
from amazon_electra.flows.configuration.study_file import StudyChoice
from amazon_electra.flows.studies.study_reading import load_study
from tests.flows.forms import fill_parameters
from tests.flows.studies.loaded import load_content

ARMS = [
    {"name": "reviews", "pretraining": {"shards": "${shards}"}},
    {"name": "other", "pretraining": {"shards": "${general_shards}"}},
]
WRITTEN = {"seeds": [0], "arms": ARMS, "tasks": [{"task": "polarity", "data": "${corpus}"}]}


def test_a_file_names_what_stages_make(tmp_path, encoder):
    loaded = load_content(WRITTEN, tmp_path, general_text=["g.txt"])
    assert loaded.wanted == {"corpus", "shards", "general_shards"}
    given = fill_parameters([f"pretraining.start_from={encoder}"], recipe="sample")
    wanted = load_study(given, StudyChoice(file="encoders")).wanted
    assert wanted == {"corpus", "shards", "origin"}
    read = fill_parameters(["pretraining.batch=8"], store=str(tmp_path))
    load_study(read, StudyChoice(file="losses"))


@pytest.mark.parametrize(
    ("file", "settings", "choice", "field"),
    [
        (WRITTEN, [], {}, "study.general_text"),
        ({**WRITTEN, "arms": ARMS[:1]}, [], {"general_text": ["g.txt"]}, "study.general_text"),
        ({**WRITTEN, "tasks": [{"task": "polarity", "data": "${reviews}"}]}, [], {}, ""),
        ("encoders", [], {}, "pretraining.start_from"),
        ("objective", ["pretraining.steps=60"], {"general_text": ["x"]}, "pretraining.steps"),
        ("objective", ["pretraining.seed=3"], {"general_text": ["x"]}, "pretraining.seed"),
        ("losses", [], {"settings": {"loss": "focal"}}, "loss"),  # every arm has its own
        ("losses", [], {"settings": {"seeds": "one"}}, "seeds"),
        ("nothing", [], {}, "study.file"),
    ],
)
def test_what_does_not_go_together_is_refused(file, settings, choice, field, tmp_path):
    if isinstance(file, dict):
        read = partial(load_content, file, tmp_path, **choice)
    else:
        form = fill_parameters(settings, store=str(tmp_path))
        read = partial(load_study, form, StudyChoice(file=file, **choice))
    with pytest.raises(UserError) as told:
        read()
    assert told.value.field == field


def test_settings_of_the_command_replace_those_of_the_file(tmp_path, encoder):
    form = fill_parameters([f"pretraining.start_from={encoder}"], store=str(tmp_path))
    settings = {"n_dev": "100", "pretraining_seeds": "0,1", "steps": "80"}
    study = load_study(form, StudyChoice(file="encoders", settings=settings)).study
    assert (study.settings["n_dev"], study.pretraining_seeds) == (100, [0, 1])
    assert study.arms[0].pretraining.set == {"steps": "80"}
