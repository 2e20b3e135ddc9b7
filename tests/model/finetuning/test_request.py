"""Settings of a fine-tuning: those of a run are read back, those without an effect are refused."""

import json
from dataclasses import replace

import pytest

from amazon_electra.beam_jobs.core.settings import parse_field
from amazon_electra.model.config import FinetuningSettings
from amazon_electra.model.finetuning.examples import Task
from amazon_electra.model.finetuning.request import check_for_task, choose_layers
from tests.refusals import refuses


def test_settings_of_a_run_are_read_back():
    alpha = parse_field(FinetuningSettings, "focal_alpha", "0.25")
    settings = FinetuningSettings(loss="focal", focal_alpha=alpha)
    assert settings.focal_alpha == (0.25,)
    kept = json.loads(json.dumps(settings.model_dump()))
    assert FinetuningSettings.from_run({"settings": kept}) == settings


@pytest.mark.parametrize(
    ("shape", "settings", "field"),
    [
        ("span", {"loss": "focal"}, "loss"),
        ("tokens", {"class_weights": "balanced"}, "class_weights"),
        ("choice", {"loss": "focal", "focal_alpha": (0.5,)}, "focal_alpha"),
        ("classification", {"focal_alpha": (0.5,)}, "focal_alpha"),
        ("classification", {"focal_gamma": 5.0}, "focal_gamma"),
        ("classification", {"stride": 32}, "stride"),
        ("classification", {"soft_weight": 0.7}, "soft_weight"),
        ("classification", {"loss": "focal", "focal_alpha": (0.5,)}, "focal_alpha"),
    ],
)
def test_what_a_task_would_pass_over_is_refused(shape, settings, field):
    task = Task("t", shape, ("a", "b", "c"), ("accuracy",), lambda *_: [], "")
    with refuses(field=field):
        check_for_task(FinetuningSettings(**settings), task, has_teacher=False)
    several = FinetuningSettings(loss="focal", focal_alpha=(0.1, 0.1, 0.8))
    check_for_task(several, replace(task, shape="tokens"), has_teacher=False)
    check_for_task(FinetuningSettings(soft_weight=0.7), task, has_teacher=True)


def test_layers_of_a_teacher_are_spread_evenly():
    assert choose_layers("half", 5) == [0, 2, 4]
    assert choose_layers("half", 6) == choose_layers("layers:3", 6) == [0, 2, 4]
    assert choose_layers("layers:2", 6) == [0, 3]
    assert choose_layers("layers:5", 6) == [0, 1, 2, 3, 4]
